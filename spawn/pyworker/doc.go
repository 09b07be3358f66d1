// Package pyworker carries the Python program that a worker runs, and the Python modules it shares with the hosts'
// client, as sources in the binary, and lays them out on disk for an interpreter to run.
//
// program holds the entry point, worker the package comfy_supervisor_worker (three lanes, the pack's import, node
// calls), wire the frames, values and memory files that both sides share; the Go twin of its protocol is spawn/wire.
// The Python is standard library only, from 3.10 on.
//
// The package imports nothing of this module and starts no process. What it lays out is named by its content, complete
// or absent, and never changed in place: workers of several versions run side by side.
package pyworker
