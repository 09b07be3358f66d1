package spawn

import "time"

// A launcher lends its connection to Python to the supervisor that has its Traffic stream, where the system can hand
// over descriptors of sockets that keep the borders of packets. Frames then take one hop in place of three: a call costs
// less than half, and a launcher that is stopped or slow delays nobody. The stream stays, for what the launcher has to
// say and for the two to notice each other's end.
//
// The descriptor arrives over a socket in the launcher's folder. The connection through which it came stays open as long
// as the supervisor uses it, so the launcher knows when it may lend it to another one. Both keep the same end: nothing
// is lost when one of them dies, and what Python sends meanwhile waits in the socket.
const (
	lendingHeader = "comfy-supervisor-lends" // of the Traffic stream
	lineName      = "line"                   // of the socket, in the launcher's folder

	// releaseLimit is how long a launcher waits for a supervisor to let go of what it was lent. Only one that is stopped
	// takes so long; one that is dead has let go.
	releaseLimit = 2 * time.Second
	// lineLimit is how long the two may take to hand it over.
	lineLimit = 3 * time.Second
)
