package api

import "time"

// Budget is what the supervisor knows of the machine's memory. All amounts are bytes.
type Budget struct {
	Cards []BudgetCard `json:"cards"`
	// CardsError is why the driver does not show the cards; then they are known from the processes' own readings.
	CardsError string        `json:"cards_error,omitempty"`
	RAM        BudgetRAM     `json:"ram"`
	Pins       BudgetPins    `json:"pins"`
	Parties    []BudgetParty `json:"parties"`
	// Estimates counts the node classes whose computing was measured, by card and attention backend.
	Estimates int `json:"estimates"`
}

// BudgetCard is one card, or one MIG instance.
type BudgetCard struct {
	Device       string         `json:"device"` // UUID, place on the bus, or what a process calls it
	Name         string         `json:"name,omitempty"`
	PCI          string         `json:"pci,omitempty"`
	Parent       string         `json:"parent,omitempty"` // the card that it is an instance of
	Error        string         `json:"error,omitempty"`  // why it can not be read
	Total        int64          `json:"total"`
	Free         int64          `json:"free"`
	Driver       int64          `json:"driver"`       // kept by the driver
	Promised     int64          `json:"promised"`     // held back by leases
	Available    int64          `json:"available"`    // free and not promised
	Unattributed int64          `json:"unattributed"` // held by nobody we know
	Source       string         `json:"source"`       // driver, worker or books
	At           time.Time      `json:"at"`
	ProcessLocal bool           `json:"process_local"` // a process sees only its own bytes as taken
	Attributed   bool           `json:"attributed"`    // the driver says what each process holds
	Holders      []BudgetHolder `json:"holders"`
	Leases       []BudgetLease  `json:"leases"`
	Waiting      []BudgetAsk    `json:"waiting"`
}

// BudgetHolder is one party on one card.
type BudgetHolder struct {
	Session      string `json:"session"`
	Environment  string `json:"environment,omitempty"` // empty: the session's host
	Generation   uint64 `json:"generation,omitempty"`
	Charge       int64  `json:"charge"`
	Reported     int64  `json:"reported"`
	Driver       *int64 `json:"driver"` // null: the driver can not tell
	Models       int    `json:"models"`
	Contradicted bool   `json:"contradicted,omitempty"` // the driver says otherwise than it reports
	Unresponsive bool   `json:"unresponsive,omitempty"` // it did not answer the last release
	Dry          bool   `json:"dry,omitempty"`          // it has no more to give
	Asked        int64  `json:"asked,omitempty"`        // by a release that has not been answered
}

// BudgetLease holds bytes of a card for one load.
type BudgetLease struct {
	Session     string    `json:"session"`
	Environment string    `json:"environment,omitempty"`
	Generation  uint64    `json:"generation,omitempty"`
	Bytes       int64     `json:"bytes"`
	Forced      bool      `json:"forced,omitempty"`
	Working     bool      `json:"working,omitempty"`
	GrantedAt   time.Time `json:"granted_at"`
}

// BudgetAsk is a load that waits for room.
type BudgetAsk struct {
	Session     string   `json:"session"`
	Environment string   `json:"environment,omitempty"`
	Generation  uint64   `json:"generation,omitempty"`
	Weights     int64    `json:"weights"`
	Models      []string `json:"models,omitempty"`
}

// BudgetRAM is the machine's RAM.
type BudgetRAM struct {
	Total     int64  `json:"total"`
	Available int64  `json:"available"`
	Limit     int64  `json:"limit,omitempty"` // of the cgroup
	LimitedBy string `json:"limited_by,omitempty"`
}

// BudgetPins is how the pinned RAM is split.
type BudgetPins struct {
	Budget int64 `json:"budget"` // 0: nobody pins
	Pinned int64 `json:"pinned"` // by all
}

// BudgetParty is one process whose memory is accounted for.
type BudgetParty struct {
	Session     string       `json:"session"`
	Environment string       `json:"environment,omitempty"`
	Generation  uint64       `json:"generation,omitempty"`
	Phase       string       `json:"phase"`
	Memory      WorkerMemory `json:"memory"`
}

// WorkerMemory is what one process holds and may hold.
type WorkerMemory struct {
	VRAM        int64    `json:"vram"`   // on all cards, as charged
	Pinned      int64    `json:"pinned"` // page-locked RAM
	PinCap      int64    `json:"pin_cap,omitempty"`
	Reserve     int64    `json:"reserve,omitempty"`  // what it is told to leave alone beyond its own reserve
	Headroom    int64    `json:"headroom,omitempty"` // of its pager
	VRAMCap     int64    `json:"vram_cap,omitempty"`
	PinnedCap   int64    `json:"pinned_cap,omitempty"`
	ResidentCap int64    `json:"resident_cap,omitempty"`
	Models      []string `json:"models,omitempty"`
	PromptOver  bool     `json:"prompt_over"` // no prompt that runs or waits has a node of it
	StandIns    int      `json:"stand_ins,omitempty"`
	Remarks     []string `json:"remarks,omitempty"`
	// Silent: it says nothing of its memory, since nothing in it uses any that could be given back.
	Silent bool `json:"silent,omitempty"`
}

// ReleaseParams asks workers for memory: everything, or Bytes of a card, or Bytes of pinned RAM.
type ReleaseParams struct {
	Environment string `json:"environment,omitempty"` // empty: every worker
	AllSessions bool   `json:"all_sessions,omitempty"`
	Bytes       int64  `json:"bytes,omitempty"`
	Pins        bool   `json:"pins,omitempty"`
}

// ReleaseResult says what came of it.
type ReleaseResult struct {
	Released []Released `json:"released"`
}

// Released is what one worker gave back.
type Released struct {
	Session     string        `json:"session"`
	Environment string        `json:"environment"`
	Generation  uint64        `json:"generation"`
	Kind        string        `json:"kind"`
	Freed       int64         `json:"freed"` // of cards
	PinsFreed   int64         `json:"pins_freed"`
	Busy        bool          `json:"busy,omitempty"`    // it computes, and was not asked
	Nothing     bool          `json:"nothing,omitempty"` // nothing in its process can be given back
	Error       string        `json:"error,omitempty"`
	Steps       []ReleaseStep `json:"steps,omitempty"`
}

// ReleaseStep is one rung of a release.
type ReleaseStep struct {
	Name  string `json:"name"`
	Freed int64  `json:"freed"`
	Error string `json:"error,omitempty"`
}
