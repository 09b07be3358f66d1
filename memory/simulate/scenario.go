package simulate

import (
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Scenario is a machine, who works on it, and what goes wrong. Sizes are bytes.
type Scenario struct {
	Name string
	Seed uint64
	// Duration is how long the work would take if nobody ever waited. Every mode does the same work, however long it takes.
	Duration time.Duration
	Cards    []Card
	Machine  Machine
	Sessions []Session
	Faults   Faults
	Rules    memory.Rules
	Limits   memory.Limits
}

// Card is one device.
type Card struct {
	Total        memory.Bytes
	Driver       memory.Bytes // kept by the driver
	ProcessLocal bool         // processes see only their own bytes as taken; nobody is refused, and all slow down
}

// Machine is the RAM.
type Machine struct {
	RAM memory.Bytes // as every process sees it
	// Limit is the container's, which no ComfyUI looks at; 0: none. Beyond it, or the RAM, the kernel kills.
	Limit memory.Bytes
	// Other is RAM that neither hosts nor workers hold.
	Other memory.Bytes
}

// Model is a set of weights.
type Model struct {
	Name  string
	Size  memory.Bytes
	Paged bool
}

// Node is one call: in a worker, or in the host itself.
type Node struct {
	Environment string // empty: the host's own node
	Model       Model
	Activation  memory.Bytes  // as the model estimates it
	Compute     time.Duration // with every weight on the card
}

// Workflow is what one prompt does: steps one after another, the nodes of one step beside each other.
type Workflow struct {
	Name   string
	Weight int // how often it is chosen against the others
	Steps  [][]Node
}

// Session is one host with its person.
type Session struct {
	Card      int
	Start     time.Duration
	Workflows []Workflow
	// Think is the time between a prompt's end and the next one, drawn evenly.
	ThinkLow, ThinkHigh time.Duration
	// Streak is how many prompts in a row use the same workflow, on average.
	Streak int
}

// Faults are what goes wrong.
type Faults struct {
	WorkerLife time.Duration // mean time to the sudden death of a worker; 0: they live
	HostLife   time.Duration // likewise of a host
	Lost       float64       // share of messages that never arrive
	Late       float64       // share of messages that take up to LateBy
	LateBy     time.Duration
	Skew       float64 // by how much a report may differ from the truth, as a share
	Silent     float64 // share of workers that never answer a release
	Surprise   float64 // by how much a computation may exceed its estimate, as a share
	Foreign    []Foreign
	// Driver says what the driver's readings are worth.
	Driver Driver
}

// Driver says what can be read of the cards.
type Driver string

// What can be read.
const (
	DriverAttributed Driver = ""           // the whole card, and what every process of ours holds
	DriverWhole      Driver = "whole"      // the whole card only
	DriverMissing    Driver = "missing"    // nothing: a worker's own reading
	DriverUnreadable Driver = "unreadable" // nothing at all after the first look
)

// Foreign is a process that is not ours and takes part of a card for a while.
type Foreign struct {
	Card       int
	From, Till time.Duration
	Bytes      memory.Bytes
}

// Mode is who decides.
type Mode string

// The modes.
const (
	Independent Mode = "independent" // every process is a ComfyUI of its own, and nobody coordinates
	Coordinated Mode = "ours"        // package memory
	Oracle      Mode = "oracle"      // knows every future call, is told everything at once, and is obeyed at once
)

// How fast things are, all in bytes a second, and what they cost beside.
const (
	fromDisk        = 1.5 * float64(memory.GiB)
	fromRAM         = 6 * float64(memory.GiB)
	fromPinnedRAM   = 12 * float64(memory.GiB)
	releaseSpeed    = 24 * float64(memory.GiB) // 2 to 6 GiB were measured in 0.05 to 0.20 s
	releaseLatency  = 30 * time.Millisecond
	processStart    = 5 * time.Second // with torch
	hostRestart     = 30 * time.Second
	messageTime     = 300 * time.Microsecond
	readingTime     = 200 * time.Microsecond
	deathNoticed    = 5 * time.Millisecond // by pidfd
	sweepEvery      = 10 * time.Second
	loadChunks      = 6
	contextBytes    = 290 * memory.MiB
	workerRAM       = 400 * memory.MiB
	hostRAM         = 2 * memory.GiB
	streamingCost   = 1.5  // computing with no weight on the card takes this much longer
	overcommitCost  = 53.0 // measured on WDDM
	overcommitLimit = 10 * time.Minute
)
