package memory

import (
	"cmp"
	"strconv"
)

// Party is whoever holds memory: a host or one generation of one worker. A replacement is another party, so a late
// report from a dead generation matches nobody.
type Party struct {
	Session     string `json:"session"`
	Environment string `json:"environment,omitempty"` // empty: the host of the session
	Generation  uint64 `json:"generation,omitempty"`  // 0: the host
}

// Host is the party of a session's own ComfyUI process.
func Host(session string) Party { return Party{Session: session} }

// IsHost tells a session's ComfyUI process from its workers.
func (p Party) IsHost() bool { return p.Environment == "" }

// String prints "session/environment#generation", or "session/host".
func (p Party) String() string {
	if p.IsHost() {
		return p.Session + "/host"
	}
	return p.Session + "/" + p.Environment + "#" + strconv.FormatUint(p.Generation, 10)
}

// Compare orders parties by session, environment and generation, the host of a session first.
func (p Party) Compare(other Party) int {
	return cmp.Or(
		cmp.Compare(p.Session, other.Session),
		cmp.Compare(p.Environment, other.Environment),
		cmp.Compare(p.Generation, other.Generation),
	)
}
