// Package api is the supervisor seen from outside: the types that its socket speaks and a Go client.
//
// It owns the parameters and results of every method, the facts that status, events and logs report, and the way to
// reach a supervisor: Connect dials its socket and, when asked to, starts one first. Every type is complete as JSON.
//
// It imports the wire protocol and nothing else of this module, so that commands and tests can use it alone. It
// promises that a context given to a method ends the wait for it, that Close waits for the client's goroutine, and
// that errors of the supervisor arrive as *wire.Error with their kind.
package api
