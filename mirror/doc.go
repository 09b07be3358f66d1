// Package mirror turns what is known about a host into the environment of a worker that shall behave as if it ran
// inside that host: the variables of its process and the mirrored flags of comfy.cli_args.
//
// Plan is the whole of it: values in, a printable value out, with the source of every variable and flag, and a row with
// the reason for whatever was kept back. A pack's manifest outranks the operator's shell, which outranks the host,
// which outranks the defaults. Compare and Hash hold against each other what host and worker read back afterwards;
// Skew does so with their versions.
//
// The package is pure: it starts no process, reads no file, no clock and no environment of its own, and imports nothing
// of this module. The platform is an argument, so that every platform's rules are tested on any.
package mirror
