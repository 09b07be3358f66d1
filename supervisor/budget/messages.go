package budget

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Methods between the supervisor and the processes whose memory it accounts for. All amounts are bytes.
const (
	MethodCensus    = "memory.census"    // process: what it holds now
	MethodLease     = "memory.lease"     // worker, request: room for a load
	MethodWithdraw  = "memory.withdraw"  // worker: it no longer waits for a lease
	MethodResident  = "memory.resident"  // worker: the weights of a lease are on the card
	MethodFinished  = "memory.finished"  // worker: the computation of a lease has ended
	MethodAssign    = "memory.assign"    // to a process, request: values to set
	MethodRelease   = "memory.release"   // to a process, request: memory to give back
	MethodPrompt    = "memory.prompt"    // host, and on to its workers: a prompt begins or ends
	MethodResidency = "memory.residency" // to a host: what a worker of its session holds
	MethodNeed      = "memory.need"      // host: what it still needs of a worker
	MethodUnload    = "memory.unload"    // host, request: a stand-in was unloaded
	MethodAskCensus = "census"           // to a process, request: the last census again
)

// Device is a device as a process calls it.
type Device struct {
	Device   string `json:"device"`             // "cuda:0"
	Identity string `json:"identity,omitempty"` // its place on the PCI bus or its UUID; empty: not known
}

// DeviceCensus is one device in a census.
type DeviceCensus struct {
	memory.DeviceCensus
	Identity string `json:"identity,omitempty"`
}

// Census is what a process says that it holds.
type Census struct {
	Sequence     uint64           `json:"sequence"`
	Devices      []DeviceCensus   `json:"devices"`
	Pinned       memory.Bytes     `json:"pinned"`
	PinCeiling   float64          `json:"pin_ceiling"`
	LargestModel memory.Bytes     `json:"largest_model"`
	Resident     memory.Bytes     `json:"resident"`
	Attention    memory.Attention `json:"attention"`

	// Of hosts only.
	Reserve     *float64       `json:"reserve,omitempty"`    // its EXTRA_RESERVED_VRAM before any of ours
	Headroom    memory.Bytes   `json:"headroom,omitempty"`   // what its pager was started with
	MaxPinned   *float64       `json:"max_pinned,omitempty"` // its MAX_PINNED_MEMORY before any cap of ours
	SmartMemory *bool          `json:"smart_memory,omitempty"`
	StandIns    map[string]int `json:"stand_ins,omitempty"` // by environment
	Handles     map[string]int `json:"handles,omitempty"`
}

// Load is what load_models_gpu was called with; Reserve is the process's own, before any of ours.
type Load struct {
	Weights    memory.Bytes `json:"weights"`
	Activation float64      `json:"activation"`
	Minimum    float64      `json:"minimum"`
	Reserve    float64      `json:"reserve"`
}

// Lease asks for room for one load on one device.
type Lease struct {
	ID   ID     `json:"id"`
	Call uint64 `json:"call,omitempty"`
	Device
	Node          string       `json:"node"` // class of the node that loads
	Models        []string     `json:"models"`
	Load          Load         `json:"load"`
	LargestTensor memory.Bytes `json:"largest_tensor"`
	Streams       int          `json:"streams"`
	CastBuffers   memory.Bytes `json:"cast_buffers"`
	Context       bool         `json:"context"`
	Overhead      memory.Bytes `json:"overhead"`
	Keep          memory.Bytes `json:"keep"`
	Paged         bool         `json:"paged"`
	WaitMS        int64        `json:"wait_ms"` // then the process goes on by itself; 0: it waits as long as the rules say
	OwnFree       memory.Bytes `json:"own_free,omitempty"`
	OwnTotal      memory.Bytes `json:"own_total,omitempty"`
	ProcessLocal  bool         `json:"process_local,omitempty"`
}

// LeaseAnswer ends a Lease.
type LeaseAnswer struct {
	Verdict  memory.Verdict `json:"verdict"`
	Cause    string         `json:"cause"`
	Lease    memory.Bytes   `json:"lease"`    // held for this load against every other
	Reserve  float64        `json:"reserve"`  // EXTRA_RESERVED_VRAM while it loads
	Headroom memory.Bytes   `json:"headroom"` // of the pager while it loads; 0: not a paged load
	WaitedMS int64          `json:"waited_ms"`
	Advice   memory.Bytes   `json:"advice"` // what this node took before beyond its weights; 0: not known
	Terms    memory.Terms   `json:"terms,omitempty"`
	Assign   *Assignment    `json:"assign,omitempty"` // to be set before the load goes on
}

// Resident and Finished speak of a lease by the ID of its request.
type Resident struct {
	ID   ID            `json:"id"`
	Held *memory.Bytes `json:"held"`
}

// Finished is the end of what a lease was for.
type Finished struct {
	ID   ID           `json:"id"`
	Peak memory.Bytes `json:"peak"` // over what was resident; 0: not measured
}

// Assignment is a set of values for a process to put in force; what is nil stays as it is.
type Assignment struct {
	Reserve  *float64      `json:"reserve,omitempty"`
	Headroom *memory.Bytes `json:"headroom,omitempty"`
	PinCap   *memory.Bytes `json:"pin_cap,omitempty"`
	VRAMCap  *memory.Bytes `json:"vram_cap,omitempty"`
}

// Assigned answers an Assignment with the values read back.
type Assigned struct {
	Applied map[string]any `json:"applied"`
	Missing []string       `json:"missing"`
	Pending bool           `json:"pending,omitempty"` // nothing is there yet to set them in
}

// Release asks a process for memory. Bytes of free_memory are the shortfall: the host adds what it reads as free itself.
type Release struct {
	Kind memory.ActionKind `json:"kind"`
	*Device
	Bytes           memory.Bytes `json:"bytes,omitempty"`
	Keep            []string     `json:"keep,omitempty"`
	KeepEnvironment string       `json:"keep_environment,omitempty"` // whose stand-ins a host keeps
	// KeepEnvironments are further ones; "*" is all: what workers give is asked of them.
	KeepEnvironments []string `json:"keep_environments,omitempty"`
	Cause            string   `json:"cause"`
}

// Receipt is what a process measured that it gave back.
type Receipt struct {
	Kind      memory.ActionKind       `json:"kind"`
	Freed     map[string]memory.Bytes `json:"freed"` // by device, as the process calls it
	PinsFreed memory.Bytes            `json:"pins_freed"`
	Census    *Census                 `json:"census"`
	Steps     []Step                  `json:"steps"`
	Stuck     memory.Bytes            `json:"stuck"`             // what it still holds after a full release
	Raw       map[string]memory.Bytes `json:"raw,omitempty"`     // of that, plain modules, by the class of the node that has them
	Handles   *int                    `json:"handles,omitempty"` // values of it that others can still use
}

// Step is one rung of a release.
type Step struct {
	Name  string       `json:"name"`
	Freed memory.Bytes `json:"freed"`
	Error string       `json:"error,omitempty"`
}

// Prompt is a moment of a host's prompt.
type Prompt struct {
	PromptID           string   `json:"prompt_id"`
	Workflow           string   `json:"workflow"`
	Environments       []string `json:"environments,omitempty"`
	QueuedEnvironments []string `json:"queued_environments,omitempty"`
	State              string   `json:"state"` // "begin" or "end"
}

// Need is what a host still needs of a worker.
type Need struct {
	Environment string `json:"environment"`
	Generation  uint64 `json:"generation"`
	StandIns    int    `json:"stand_ins"`
	Handles     int    `json:"handles"`
}

// Unload is a host's wish that an idle worker lets go, or, without an environment, all idle ones of its session.
type Unload struct {
	Environment string       `json:"environment"`
	Device                   // as the host calls it; empty: wherever it is
	Stage       string       `json:"stage,omitempty"`
	Models      []string     `json:"models,omitempty"` // those to unload; empty: by Bytes, or all
	Bytes       memory.Bytes `json:"bytes,omitempty"`
	All         bool         `json:"all,omitempty"`
	Cause       string       `json:"cause"`
}

// Unloaded answers an Unload.
type Unloaded struct {
	Freed   memory.Bytes `json:"freed"`
	Busy    bool         `json:"busy"`    // one computes, and was not asked
	Workers int          `json:"workers"` // that have let go
}

// Residency tells a host what a worker of its session holds.
type Residency struct {
	Environment string         `json:"environment"`
	Generation  uint64         `json:"generation"`
	Models      []ModelOnCards `json:"models"`
}

// ModelOnCards is one model of a worker on one device, which is called as the host calls it; one that the host can not see
// has no name.
type ModelOnCards struct {
	memory.ModelCensus
	Device   string `json:"device"`
	Identity string `json:"identity,omitempty"`
}

// census answers MethodAskCensus.
type censusAnswer struct {
	Census *Census       `json:"census"`
	Own    []ownReading  `json:"own"`
	Leases []livingLease `json:"leases"`
}

// ownReading is a process's look at a device, made for the answer.
type ownReading struct {
	Device
	OwnFree      memory.Bytes `json:"own_free"`
	OwnTotal     memory.Bytes `json:"own_total"`
	ProcessLocal bool         `json:"process_local"`
}

// livingLease is a lease that a process still counts on.
type livingLease struct {
	ID ID `json:"id"`
	Device
	Bytes   memory.Bytes `json:"bytes"`
	Working bool         `json:"working"`
}

// ID is what a process calls one of its leases: a text or a number.
type ID string

// UnmarshalJSON reads a text or a number.
func (id *ID) UnmarshalJSON(text []byte) error {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] != '"' {
		*id = ID(strings.TrimSpace(string(trimmed)))
		return nil
	}
	var value string
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	*id = ID(value)
	return nil
}
