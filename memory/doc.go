// Package memory decides who may hold what on a machine that several ComfyUI processes share: which load is admitted
// to a card and which waits, what is asked back from whom and in which order, what a host is told to leave alone, how
// much RAM every process may pin, and when an idle worker lets go.
//
// Everything here is pure. Time, free bytes and reports are arguments; plans come back as values that one can print,
// test and replay, and that carry every term of every sum. No clock, file, process or goroutine is touched, and nothing
// of this module is imported. Where ComfyUI has a formula, that formula is used with its own rounding, and the comment
// names the place; numbers that upstream fixes stand in upstream.go.
//
// The readings come from memory/probe, the effects are the supervisor's, and memory/simulate drives all of it through
// virtual hours.
package memory
