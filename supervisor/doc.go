// Package supervisor is the daemon: one per user, it owns the sessions of ComfyUI hosts and of the operator, and the
// workers that run their nodes.
//
// It owns the socket, the lock that makes it the only one of its runtime directory, sessions and their persistence,
// worker records with their state machine (a printable table of transitions, a pure function over it, and a small loop
// that carries out what it says), the forwarding of calls, time limits, sweeps, events and per-environment logs.
//
// Processes, trees and memory files are spawn's, decisions about memory are memory's, environments come through the
// Environments interface, and what travels to clients is in supervisor/api. It knows nothing of TOML, uv or pixi.
//
// It promises that a client that floods, stalls or vanishes harms nobody else; that every call is answered; that late
// reports of a dead generation change nothing; and that after Run has returned nothing of it is left.
package supervisor
