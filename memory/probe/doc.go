// Package probe reads what this machine has: cards through NVML, RAM with the limits of cgroups, and how long tasks stall
// for memory.
//
// NVML is called from one goroutine with a deadline, so that a driver that hangs costs a reading and nothing else; every
// function is looked up before its first call, since calling one that a driver lacks ends the process. Linux with cgo
// goes through go-nvml, Windows calls nvml.dll itself, elsewhere CardSupport says why there is no reading.
//
// The package imports memory for the types of its answers and decides nothing.
package probe
