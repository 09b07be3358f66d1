package memory

import "time"

// Ask is a load that wants room on a device.
type Ask struct {
	ID     string `json:"id"` // unique; asking again with the same ID gets the same answer
	Party  Party  `json:"party"`
	Device string `json:"device"`
	// Models are the names of the models of the load, as a census calls them.
	Models []string `json:"models,omitempty"`
	// Load is what load_models_gpu was called with.
	Load Load `json:"load"`
	// Advice is the activation that was measured for this node before, in bytes; it only ever raises the estimate.
	Advice Bytes `json:"advice"`
	// LargestTensor and Streams are those of the load, CastBuffers what the process has committed for casting already.
	LargestTensor Bytes `json:"largest_tensor"`
	Streams       int   `json:"streams"`
	CastBuffers   Bytes `json:"cast_buffers"`
	// Context: the process has a context on the device already.
	Context bool `json:"context"`
	// Overhead is what earlier loads of this process cost beyond their weights and estimates, as measured, in bytes.
	Overhead Bytes `json:"overhead"`
	// Keep is what of the models of this load is on the device already; the process cannot give it back while it waits.
	Keep Bytes `json:"keep"`
	// Paged: every model of the load is paged. The pager takes what it gets and decides page by page.
	Paged bool `json:"paged"`
	// Deadline is when the asking process goes on by itself; zero: after Rules.AskWait.
	Deadline time.Time `json:"deadline,omitzero"`
	// KeptBack is how long it waited already for what had to be known before it could be decided.
	KeptBack time.Duration `json:"kept_back,omitempty"`
}

// Verdict is how an ask ends.
type Verdict string

// The verdicts. Every ask gets exactly one.
const (
	// Granted: the lease holds everything that was asked.
	Granted Verdict = "granted"
	// Short: everything that could be freed has been, and the lease holds what is there. Upstream then loads in part.
	Short Verdict = "short"
	// Forced: the load goes on under upstream's own rules though its computation may not fit, or others were promised
	// bytes that it may take.
	Forced Verdict = "forced"
	// Dropped: nobody waits for the answer any more (the process is gone, or it asks for another load).
	Dropped Verdict = "dropped"
)

// Answer ends an ask.
type Answer struct {
	Ask     string  `json:"ask"`
	Party   Party   `json:"party"`
	Device  string  `json:"device"`
	Verdict Verdict `json:"verdict"`
	Cause   string  `json:"cause"`
	Lease   Bytes   `json:"lease"` // held against everybody else, from now on
	// Reserve is the EXTRA_RESERVED_VRAM for this load, in bytes: the process's own and what is promised to others, so
	// that upstream's own sum leaves their bytes alone.
	Reserve float64 `json:"reserve"`
	// Headroom is what the pager of a paged load must leave free on the card, in bytes: what is neither its own nor in the
	// lease, and what computing takes. 0: not a paged load.
	Headroom Bytes `json:"headroom,omitempty"`
	// Waited is the time from the ask to this answer.
	Waited time.Duration `json:"waited"`
	Terms  Terms         `json:"terms"`
}

// Causes of answers.
const (
	CauseFits       = "fits"           // there was room, perhaps after releases
	CauseNothing    = "nothing_left"   // nobody has more to give
	CauseCycle      = "cycle_of_waits" // several loads waited for each other's bytes
	CauseDeadline   = "deadline"       // the time limit ended
	CauseNoReading  = "no_reading"     // the card's size is not known
	CauseWithdrawn  = "withdrawn"      // the process went on by itself
	CauseSuperseded = "superseded"     // the process asks for another load
	CauseGone       = "gone"           // the process ended
	CauseStale      = "stale"          // the ask came from a generation that is gone
)

// need is what an ask comes to.
type need struct {
	total Bytes // must be free at grant time: what the load takes, and the reserve that stays free
	take  Bytes // what the load takes: the lease
	work  Bytes // the part of take that computing takes after the weights are there
	terms Terms
}

// needOf adds up upstream's own expression and what it leaves out: the context, cast buffers and measured overhead.
func needOf(ask *Ask, rules *Rules) need {
	load := ask.Load
	load.Activation = max(load.Activation, float64(ask.Advice))
	required := ceilBytes(load.Required())
	reserve := max(0, ceilBytes(load.Reserve))
	weights := ceilBytes(float64(float64(load.Weights) * loadOverhead))
	cast := max(0, addBytes(CastBuffers(ask.Streams, ask.LargestTensor), -ask.CastBuffers))
	var context Bytes
	if !ask.Context {
		context = rules.ContextFloor
	}
	beyond := addBytes(addBytes(context, cast), ask.Overhead)
	n := need{total: max(0, addBytes(required, beyond))}
	n.take = max(0, n.total-reserve)
	n.work = max(0, n.take-weights)
	n.terms = Terms{
		Amount("weights", load.Weights), Amount("weights with a tenth", weights),
		Amount("activation estimate", ceilBytes(ask.Load.Activation)), Amount("activation measured before", ask.Advice),
		Amount("minimum inference memory", ceilBytes(MinimumInferenceMemory(load.Reserve))),
		Amount("reserve", ceilBytes(load.Reserve)), Amount("upstream requires", required),
		Amount("context", context), Amount("cast buffers", cast), Amount("measured overhead", ask.Overhead),
		Amount("needed", n.total),
	}
	return n
}

// repairAsk brings every figure into a range that sums cannot leave, and names what it changed.
func repairAsk(ask *Ask) Terms {
	var wrong Terms
	fix := func(name string, value *Bytes) {
		switch {
		case *value < 0:
			wrong = append(wrong, Amount(name, *value), Fact("objection", ObjectionNegative))
			*value = 0
		case *value > plausible:
			wrong = append(wrong, Amount(name, *value), Fact("objection", ObjectionAbsurd))
			*value = plausible
		}
	}
	fixFloat := func(name string, value *float64, least float64) {
		switch {
		case *value != *value:
			wrong = append(wrong, Fact(name, "not a number"), Fact("objection", ObjectionAbsurd))
			*value = 0
		case *value < least:
			wrong = append(wrong, Amount(name, ceilBytes(*value)), Fact("objection", ObjectionNegative))
			*value = least
		}
		// Above: upstream itself asks for 1e20 bytes to force a partial load, so large is no objection.
		*value = min(*value, float64(plausible))
	}
	fix("weights", &ask.Load.Weights)
	fix("advice", &ask.Advice)
	fix("largest tensor", &ask.LargestTensor)
	fix("cast buffers", &ask.CastBuffers)
	fix("overhead", &ask.Overhead)
	fix("resident already", &ask.Keep)
	fixFloat("activation", &ask.Load.Activation, 0)
	fixFloat("reserve", &ask.Load.Reserve, -float64(plausible))
	fixFloat("minimum", &ask.Load.Minimum, -1)
	ask.Streams = min(max(0, ask.Streams), 1024)
	return wrong
}

// Lease holds bytes of a device against every other ask until the load and the computation it was for have ended.
type Lease struct {
	Ask       string    `json:"ask"`
	Party     Party     `json:"party"`
	Device    string    `json:"device"`
	Bytes     Bytes     `json:"bytes"`   // as granted
	Forced    bool      `json:"forced"`  // may not have fitted
	Working   bool      `json:"working"` // the weights are there; what is left is for computing
	GrantedAt time.Time `json:"granted_at"`
	RenewedAt time.Time `json:"renewed_at"`

	work       Bytes     // what of Bytes computing takes after the weights
	base       Bytes     // the party's confirmed charge when this phase began
	heldBefore Bytes     // what it had reported when the lease was granted
	context    Bytes     // what its first context will cost beyond that
	workBase   Bytes     // its charge with the weights and before the computation; below 0: it did not say
	residentAt time.Time // when the load reported that its weights are there; zero: it has not
}

// outstanding is what of the lease has not turned into measured bytes yet.
func (l *Lease) outstanding(confirmed Bytes) Bytes {
	grown := max(0, addBytes(confirmed, -l.base))
	if l.Working {
		return max(0, l.work-grown)
	}
	return max(0, l.Bytes-grown)
}
