package demo

// killedBySignal says whether the system tells which signal ended a process.
const killedBySignal = false
