package api

import (
	"encoding/json"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Methods that a client sends.
const (
	MethodHello        = "hello"
	MethodPing         = "ping"
	MethodCall         = "call"
	MethodCancel       = "cancel"
	MethodStop         = "stop"
	MethodRestart      = "restart"
	MethodReset        = "reset"
	MethodEnvironments = "environments"
	MethodNodes        = "nodes"
	MethodStatus       = "status"
	MethodLogs         = "logs"
	MethodEvents       = "events"
	MethodShutdown     = "shutdown"
	MethodBudget       = "budget"
	MethodRelease      = "release"

	// MethodGoodbye is a host's notification that it ends its session: its workers go at once.
	MethodGoodbye = "goodbye"

	MethodMemoryReserve   = "memory.reserve"
	MethodMemoryReturn    = "memory.return"
	MethodMemoryReleased  = "memory.released"
	MethodMemoryInventory = "memory.inventory"
)

// Notifications that a client gets, with the ID of the request that they belong to in Message.Call.
const (
	NotificationProgress = "progress"
	NotificationLog      = "log"
	NotificationEvent    = "event"
)

// HelloParams is a client's first message.
type HelloParams struct {
	Protocol int    `json:"protocol"`
	Role     string `json:"role"`
	PID      int    `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat on Linux; empty where the client can not tell.
	StartTime string `json:"start_time"`
	// Token reconnects to a session that this very process had before.
	Token string `json:"token,omitempty"`
	// Owner is a random ID of this client process: the prefix of its memory files' IDs.
	Owner string `json:"owner"`
	Name  string `json:"name"`
	// Environ is the process's environment: the base of its workers' variables.
	Environ       map[string]string `json:"environ,omitempty"`
	HostFacts     json.RawMessage   `json:"host_facts,omitempty"`
	HostFactsFile string            `json:"host_facts_file,omitempty"`
	ComfyUI       string            `json:"comfyui"`
	// Holds and Owned tell, at a reconnect, which memory files the client refers to and made.
	Holds         []FileCount `json:"holds,omitempty"`
	Owned         []wire.File `json:"owned,omitempty"`
	ReservedBytes int64       `json:"reserved_bytes,omitempty"` // of its memory files, pooled ones included
}

// HelloResult answers hello.
type HelloResult struct {
	Protocol   int         `json:"protocol"`
	Session    string      `json:"session"`
	Token      string      `json:"token"`
	Supervisor Supervisor  `json:"supervisor"`
	Memory     MemoryRules `json:"memory"`
}

// MemoryRules are the limits of memory files.
type MemoryRules struct {
	QuotaBytes int64 `json:"quota_bytes"`
	PoolBytes  int64 `json:"pool_bytes"` // what one process may keep for its next values
	// Folder is where the files lie on systems without memory files; they are its direct children.
	Folder string `json:"folder,omitempty"`
}

// FileCount says how many deliveries of a memory file somebody had.
type FileCount struct {
	ID    string `json:"id"`
	Count int    `json:"count"`
	// Spoiled: a forked child may still map the file, so its owner must not fill it again.
	Spoiled bool `json:"spoiled,omitempty"`
}

// ReleasedParams is the memory.released notification.
type ReleasedParams struct {
	Files []FileCount `json:"files"`
}

// BytesParams carries a number of bytes, for memory.reserve and memory.return.
type BytesParams struct {
	Bytes int64 `json:"bytes"`
	// Held is what a process that reserves has reserved already; nil where it does not say.
	Held *int64 `json:"held,omitempty"`
}

// InventoryResult answers memory.inventory.
type InventoryResult struct {
	Owned         []wire.File `json:"owned"`
	Holds         []FileCount `json:"holds"`
	ReservedBytes int64       `json:"reserved_bytes"`
}

// Encodings of inputs and results.
const (
	EncodingPython = "python"
	EncodingJSON   = "json"
)

// CallParams asks for one call of a node's function; the body holds its inputs.
type CallParams struct {
	Environment string          `json:"environment"`
	Node        string          `json:"node"`
	Function    string          `json:"function,omitempty"` // default: the node's own FUNCTION
	Encoding    string          `json:"encoding,omitempty"`
	Instance    string          `json:"instance,omitempty"`
	Context     json.RawMessage `json:"context,omitempty"`
	// SilenceMilliseconds replaces the limit after which a call without progress is given up; 0: the default.
	SilenceMilliseconds int64 `json:"silence_ms,omitempty"`
}

// CallResult says who computed a call's value, which is the body.
type CallResult struct {
	Environment string `json:"environment"`
	Generation  uint64 `json:"generation"`
	Worker      string `json:"worker"`
	PythonPID   int    `json:"python_pid"`
}

// Progress is a call's progress.
type Progress struct {
	Value  float64 `json:"value"`
	Max    float64 `json:"max"`
	Text   string  `json:"text,omitempty"`
	NodeID string  `json:"node_id,omitempty"`
}

// StopParams names what stop, restart and reset act on: an environment, in this session or in all of them; without
// one, all workers.
type StopParams struct {
	Environment string `json:"environment,omitempty"`
	AllSessions bool   `json:"all_sessions,omitempty"`
}

// StopResult lists the workers that were acted on, as they were before.
type StopResult struct {
	Stopped []Worker `json:"stopped"`
}

// EnvironmentParams names an environment.
type EnvironmentParams struct {
	Environment string `json:"environment"`
}

// EnvironmentsParams asks for environments from one on: a list that is too long for one answer comes in parts.
type EnvironmentsParams struct {
	After int `json:"after,omitempty"` // how many the client has
}

// EnvironmentsResult answers environments.
type EnvironmentsResult struct {
	Environments []Environment `json:"environments"`
	More         bool          `json:"more,omitempty"` // these are not the last
}

// NodesResult answers nodes; the contracts are the worker's own words.
type NodesResult struct {
	Nodes        json.RawMessage `json:"nodes"`
	DisplayNames json.RawMessage `json:"display_names"`
}

// InBody is the result of a reply whose real result was too large for the header and is the body, as JSON.
type InBody struct {
	InBody bool `json:"in_body"`
}

// StatusParams says how much status should tell.
type StatusParams struct {
	// Environment leaves out the workers of other environments.
	Environment string `json:"environment,omitempty"`
	// Variables adds each worker's environment variables.
	Variables bool `json:"variables,omitempty"`
}

// LogsParams asks for the last lines of an environment's log, and for those to come.
type LogsParams struct {
	Environment string `json:"environment"`
	Lines       int    `json:"lines"` // negative: all that are kept
	Follow      bool   `json:"follow,omitempty"`
	// Since is a time in RFC 3339; older lines are left out.
	Since string `json:"since,omitempty"`
	// Level leaves out what is less important: debug, detail, info, warning, error or critical.
	Level string `json:"level,omitempty"`
}

// EventsParams asks for events after a sequence number, and for those to come.
type EventsParams struct {
	Since  uint64 `json:"since"`
	Follow bool   `json:"follow,omitempty"`
}

// EventsResult tells where the events end.
type EventsResult struct {
	Last    uint64 `json:"last"`
	Dropped uint64 `json:"dropped,omitempty"` // asked for, but no longer kept
}

// ShutdownParams ends the supervisor.
type ShutdownParams struct {
	// Force ends it although sessions of others live.
	Force bool `json:"force,omitempty"`
}
