// Package simulate plays a machine full of ComfyUI hosts and workers through virtual hours: processes that load, compute,
// release and die, messages that come late or never, reports that are wrong. It drives the real policy of package memory,
// and on the same workloads N ComfyUIs that know nothing of each other and an oracle that knows the future.
//
// A run is deterministic: the same scenario with the same seed gives the same run, event for event. Nothing here sleeps,
// reads a clock or starts a goroutine. The package imports memory only.
package simulate
