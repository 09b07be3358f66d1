package memory

import (
	"math"
	"slices"
	"time"
)

// How the pinned budget moves.
const (
	hostsShare       = 0.5       // of the budget, for all hosts together, as long as there are workers
	growthStep       = 512 * MiB // a cap grows by this much or not at all
	growthCensuses   = 2         // censuses in a row without a change before a cap grows
	smallestCap      = MiB       // above zero: at zero ComfyUI's unpin returns at once and every pin leaks
	newcomersShare   = 1.0 / 32  // of the budget, kept so that a newcomer can start before others' shrinks arrive
	mostForNewcomers = 2 * GiB
	// ReclaimSweeps is within how many sweeps what is pinned above a cap must be gone before it is reported.
	ReclaimSweeps = 3
)

// Pinner is one process that may pin RAM.
type Pinner struct {
	Party Party `json:"party"`
	// Ceiling is a process's own MAX_PINNED_MEMORY as it resolved it before any cap of ours, in bytes; 0 or less: pinning is
	// off. A worker's counts only where no host is.
	Ceiling float64 `json:"ceiling,omitempty"`
	// InForce is the cap that the process acknowledged last, Sent a later one that it has not; 0: none.
	InForce Bytes `json:"in_force"`
	Sent    Bytes `json:"sent,omitempty"`
	Pinned  Bytes `json:"pinned"`
	// LargestModel is what its largest model would pin: a smaller cap truncates that model's buffer.
	LargestModel Bytes `json:"largest_model"`
	// Live: it has models, or computes. Idle ones keep the floor.
	Live bool `json:"live"`
	// Stable counts censuses in a row in which pins and models did not change.
	Stable int `json:"stable"`
	// Limit is the operator's cap; 0: none.
	Limit Bytes `json:"limit,omitempty"`
	// Over counts the sweeps in a row in which it held more than its cap.
	Over int `json:"over,omitempty"`
}

// most is the largest cap that may be in force in the process right now.
func (p *Pinner) most() Bytes { return max(0, p.InForce, p.Sent) }

// PinCap is a cap to set.
type PinCap struct {
	Party Party  `json:"party"`
	Bytes Bytes  `json:"bytes"`
	Was   Bytes  `json:"was"`
	Cause string `json:"cause"`
	Terms Terms  `json:"terms"`
}

// Causes of pin caps.
const (
	CausePinNew    = "newcomer"
	CausePinShrink = "shrink"
	CausePinGrow   = "grow"
	// CausePinNone: a newcomer for whom there is nothing until others acknowledge their shrinks. It gets no cap yet, and
	// must not load a model before it has one.
	CausePinNone = "no_room_yet"
)

// PinPlan is how one budget is split among all processes of the machine.
type PinPlan struct {
	Budget Bytes    `json:"budget"` // 0: nobody pins, no caps
	Set    []PinCap `json:"set,omitempty"`
	// Release asks those that hold more than their cap for the excess.
	Release []Action `json:"release,omitempty"`
	// Late are those that still hold more than their cap after ReclaimSweeps sweeps.
	Late  []Party `json:"late,omitempty"`
	Terms Terms   `json:"terms"`
}

// PinRAM is what a container's limit leaves for pinning. ComfyUI does not look at it: it reads the machine's RAM.
type PinRAM struct {
	Limit Bytes `json:"limit"` // of the cgroup; 0: none, and every process keeps PinFloor of the machine's RAM by itself
	// Unpinned is what is in use under the limit and not pinned.
	Unpinned Bytes `json:"unpinned"`
}

// PinBudget is the most that all processes together may pin, in bytes: the largest ceiling that a host reports (where there
// is no host, as for calls from the command line, that a worker reports), and in a
// container never more than upstream's share of its limit, nor what is left of it beside PinFloor. 0: no host pins.
func PinBudget(pinners []Pinner, ram PinRAM) Bytes {
	var budget Bytes
	hosts := slices.ContainsFunc(pinners, func(p Pinner) bool { return p.Party.IsHost() })
	for i := range pinners {
		if pinners[i].Party.IsHost() == hosts && pinners[i].Ceiling > 0 {
			budget = max(budget, Bytes(math.Min(pinners[i].Ceiling, float64(plausible))))
		}
	}
	if ram.Limit > 0 && budget > 0 {
		// in steps, so that caps do not follow every page
		unpinned := (max(0, ram.Unpinned) + smallestPinSlice - 1) / smallestPinSlice * smallestPinSlice
		budget = min(budget, Bytes(float64(ram.Limit)*0.90), max(0, ram.Limit-unpinned-PinFloor))
		budget = max(budget, Bytes(len(pinners))*smallestCap) // pinning cannot be switched off in a process that pins
	}
	return budget
}

// SplitPins splits the budget. In order of precedence: the sum of all caps stays within it; every cap is above zero; no
// cap falls below what is pinned; nor below the largest model; nor below PinFloor; and what is left goes half to the
// hosts and half to the live workers. Each step is as equal as it can be. Caps shrink at once and grow slowly, and only
// into what others have acknowledged to have given up.
func SplitPins(pinners []Pinner, ram PinRAM) PinPlan {
	plan := PinPlan{Budget: PinBudget(pinners, ram)}
	plan.Terms = Terms{Amount("budget", plan.Budget), Amount("RAM limit", ram.Limit), Amount("used and not pinned", ram.Unpinned), Count("processes", len(pinners))}
	if plan.Budget <= 0 || len(pinners) == 0 {
		return plan
	}
	order := pinners
	if byParty := func(a, b Pinner) int { return a.Party.Compare(b.Party) }; !slices.IsSortedFunc(order, byParty) {
		order = slices.Clone(order)
		slices.SortFunc(order, byParty)
	}
	wanted := desiredCaps(order, plan.Budget)
	room, spare := plan.Budget, sparePins(plan.Budget)
	for i := range order {
		room = addBytes(room, -order[i].most())
	}
	for i := range order {
		if order[i].most() == 0 { // newcomers come before growth
			plan.place(&order[i], wanted[i], &room)
		}
	}
	room -= spare
	for i := range order {
		if order[i].most() > 0 {
			plan.place(&order[i], wanted[i], &room)
		}
	}
	slices.SortFunc(plan.Set, func(a, b PinCap) int { return a.Party.Compare(b.Party) })
	plan.reclaim(order, wanted)
	return plan
}

// place turns a wanted cap into one that may be set now.
func (p *PinPlan) place(pinner *Pinner, wanted Bytes, room *Bytes) {
	last := pinner.InForce
	if pinner.Sent > 0 {
		last = pinner.Sent
	}
	if last > 0 && wanted == last {
		return
	}
	there := *room
	set := PinCap{Party: pinner.Party, Was: last, Bytes: wanted}
	switch {
	case pinner.most() == 0:
		set.Bytes, set.Cause = min(wanted, max(0, *room)), CausePinNew
		if set.Bytes < min(smallestCap, wanted) {
			set.Bytes, set.Cause = 0, CausePinNone
		}
		*room -= set.Bytes
	case wanted < last:
		set.Cause = CausePinShrink
	case wanted > last:
		// what was sent but not acknowledged may be in force already, so only what lies above both needs room
		set.Bytes, set.Cause = min(wanted, addBytes(pinner.most(), max(0, *room))), CausePinGrow
		truncated := last < pinner.LargestModel && set.Bytes >= pinner.LargestModel
		if pinner.Stable < growthCensuses || set.Bytes-last < growthStep && !truncated {
			return
		}
		*room -= max(0, set.Bytes-pinner.most())
	default:
		return
	}
	set.Terms = Terms{Amount("wanted", wanted), Amount("was", last), Amount("pinned", pinner.Pinned),
		Amount("largest model", pinner.LargestModel), Amount("room", there)}
	p.Set = append(p.Set, set)
}

// reclaim asks for what is pinned above a cap.
func (p *PinPlan) reclaim(pinners []Pinner, wanted []Bytes) {
	above := 0
	for i := range pinners {
		if pinners[i].Pinned > pinners[i].allowed(wanted[i]) {
			above++
		}
	}
	if above == 0 {
		return
	}
	p.Release = make([]Action, 0, above)
	terms := make(Terms, 0, 3*above) // of all
	for i := range pinners {
		pinner := &pinners[i]
		limit := pinner.allowed(wanted[i])
		if pinner.Pinned <= limit {
			continue
		}
		first := len(terms)
		terms = append(terms, Amount("pinned", pinner.Pinned), Amount("cap", limit), Count("sweeps above", pinner.Over))
		p.Release = append(p.Release, Action{Kind: ReleasePins, Party: pinner.Party, Bytes: addBytes(pinner.Pinned, -limit), Cause: "above_cap",
			Terms: terms[first:len(terms):len(terms)]})
		if pinner.Over >= ReclaimSweeps {
			p.Late = append(p.Late, pinner.Party)
		}
	}
}

// allowed is what a pinner may keep pinned of a cap that it is to have.
func (p *Pinner) allowed(wanted Bytes) Bytes {
	if most := p.most(); most > 0 {
		return min(wanted, most)
	}
	return wanted
}

// sparePins is what of a budget is kept for newcomers.
func sparePins(budget Bytes) Bytes {
	return min(mostForNewcomers, Bytes(float64(budget)*newcomersShare))
}

// desiredCaps splits the budget without regard to what is in force. pinners are ordered by party.
func desiredCaps(pinners []Pinner, budget Bytes) []Bytes {
	left := budget - sparePins(budget)
	caps := make([]Bytes, len(pinners))
	most := make([]Bytes, len(pinners)) // what each may have at all
	hosts, live := 0, 0
	for i := range pinners {
		most[i] = left
		if pinners[i].Limit > 0 {
			most[i] = min(most[i], pinners[i].Limit)
		}
		switch pinner := &pinners[i]; {
		case pinner.Party.IsHost():
			if pinner.Ceiling > 0 {
				most[i] = min(most[i], Bytes(math.Min(pinner.Ceiling, float64(plausible))))
			}
			hosts++
		case pinner.Live:
			live++
		}
	}
	forHosts := left
	switch {
	case hosts == 0:
		forHosts = 0
	case hosts < len(pinners):
		forHosts = Bytes(float64(left) * hostsShare)
	}
	share := func(i int) Bytes {
		switch pinner := &pinners[i]; {
		case pinner.Party.IsHost():
			return forHosts / Bytes(hosts)
		case pinner.Live:
			return (left - forHosts) / Bytes(live)
		}
		return 0
	}
	targets := make([]Bytes, len(pinners))
	for _, target := range []func(i int) Bytes{
		func(int) Bytes { return smallestCap },
		func(i int) Bytes { return pinners[i].Pinned },
		func(i int) Bytes { return pinners[i].LargestModel },
		func(int) Bytes { return PinFloor },
		share,
		func(i int) Bytes { // what nobody claimed by its share goes to those that can use it
			if pinners[i].Live || pinners[i].Party.IsHost() {
				return most[i]
			}
			return 0
		},
	} {
		for i := range targets {
			targets[i] = min(max(0, target(i)), most[i])
		}
		left -= raise(caps, targets, left)
	}
	return caps
}

// raise lifts levels towards their targets with at most room bytes, all to one common level where room is short, and
// returns what it used.
func raise(levels, targets []Bytes, room Bytes) (used Bytes) {
	if room <= 0 {
		return 0
	}
	affords := func(level Bytes) bool {
		left := room
		for i, target := range targets {
			if to := min(target, level); to > levels[i] {
				if left -= to - levels[i]; left < 0 { // each step is below 2^63, and so is room
					return false
				}
			}
		}
		return true
	}
	var low, high Bytes
	for _, target := range targets {
		high = max(high, target)
	}
	if affords(high) {
		low = high
	} else {
		for low < high { // the highest common level that room pays for
			if middle := low + (high-low+1)/2; affords(middle) {
				low = middle
			} else {
				high = middle - 1
			}
		}
	}
	for i := range levels {
		if to := min(targets[i], low); to > levels[i] {
			used += to - levels[i]
			levels[i] = to
		}
	}
	return used
}

// RAM is the machine's memory as this user's processes have it, a cgroup's limit included.
type RAM struct {
	Total     Bytes `json:"total"`
	Available Bytes `json:"available"`
	// PressureKnown: the kernel reports pressure stalls. SomeStalled and FullyStalled are percentages of the last ten
	// seconds in which some, or all, tasks waited for memory.
	PressureKnown bool    `json:"pressure_known"`
	SomeStalled   float64 `json:"some_stalled"`
	FullyStalled  float64 `json:"fully_stalled"`
}

// When RAM is under pressure, and what is then asked.
const (
	pressureEvery    = 10 * time.Second
	smallestPinSlice = 256 * MiB // what is asked comes in multiples of this
	someStalledLimit = 20.0
	fullStalledLimit = 5.0
	pressureShare    = 1.0 / 8 // of all pins, when the kernel stalls though RAM seems available
)

// PinPressure asks everybody who pins to give back in proportion to what it pins, when less RAM is available than PinFloor
// or the kernel says that tasks stall for memory. last is when it was asked last; it acts at most every ten seconds.
func PinPressure(now, last time.Time, ram RAM, pinners []Pinner) Plan {
	if !last.IsZero() && elapsed(last, now) < pressureEvery {
		return Plan{Next: now.Add(pressureEvery - elapsed(last, now))}
	}
	var pinned Bytes
	for i := range pinners {
		pinned = addBytes(pinned, max(0, pinners[i].Pinned))
	}
	short, cause := addBytes(PinFloor, -ram.Available), "ram_short"
	if short > 0 {
		short = addBytes(short, PinPressureHysteresis)
	} else if ram.PressureKnown && (ram.SomeStalled >= someStalledLimit || ram.FullyStalled >= fullStalledLimit) {
		short, cause = max(Bytes(float64(pinned)*pressureShare), smallestPinSlice), "ram_stalls"
	}
	if short <= 0 || pinned <= 0 {
		return Plan{}
	}
	order := slices.Clone(pinners)
	slices.SortFunc(order, func(a, b Pinner) int {
		if a.Pinned != b.Pinned {
			if a.Pinned > b.Pinned {
				return -1
			}
			return 1
		}
		return a.Party.Compare(b.Party)
	})
	var plan Plan
	left := min(short, pinned)
	for i := range order {
		pinner := &order[i]
		if left <= 0 || pinner.Pinned <= 0 || pinner.Pinned < smallestPinSlice && i > 0 {
			break
		}
		slices := math.Ceil(float64(short) * (float64(pinner.Pinned) / float64(pinned)) / float64(smallestPinSlice))
		share := min(Bytes(slices)*smallestPinSlice, pinner.Pinned)
		plan.Actions = append(plan.Actions, Action{Kind: ReleasePins, Party: pinner.Party, Bytes: share, Cause: cause, Terms: Terms{
			Amount("available", ram.Available), Amount("floor", PinFloor), Amount("short", short), Amount("pinned by all", pinned),
			Amount("pinned", pinner.Pinned), Fact("stalled", stalled(ram))}})
		left -= share
	}
	return plan
}
