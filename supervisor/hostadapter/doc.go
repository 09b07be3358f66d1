// Package hostadapter carries the Python that a host imports, as sources in the binary, and lays it out on disk as one
// folder for PYTHONPATH: the package comfy_supervisor, the client of the supervisor.
//
// The Python is standard library only, from 3.10 on; connecting needs neither numpy nor torch, and nothing a worker
// sends is ever unpickled or imported. The modules it shares with workers come from spawn/pyworker.
//
// The package may import spawn/pyworker and nothing else of this module; it starts no process. What it lays out is
// named by its content and never changed in place.
package hostadapter
