package simulate

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Result is what a run came to. Sizes are bytes.
type Result struct {
	Scenario string
	Mode     Mode

	Elapsed         time.Duration // until every session had run its prompts
	Prompts, Failed int           // that succeeded, and that did not
	Processes       int           // that lived
	// OverAdmitted counts loads that were let go on though what was taken and promised then exceeded the card;
	// ForcedOver those among them that were let go on knowingly.
	OverAdmitted, ForcedOver int
	// OutOfMemory counts calls that failed for lack of memory on the card; ForcedOutOfMemory those that were let go on
	// knowingly. Slowed counts computations on an over-admitted process-local card.
	OutOfMemory, ForcedOutOfMemory, Slowed int
	KilledForRAM                           int
	Overcommitted                          memory.Bytes // the most beyond a card
	MostPinned                             memory.Bytes
	// Evicted left a card to make room for others, IdleReleased because its owner was idle.
	Evicted, IdleReleased memory.Bytes
	Reaped                int
	// Forced and Short count the verdicts, Withdrawn loads that went on because no answer came, Cycles circles of waits.
	Forced, Short, Withdrawn, Cycles int
	// PinsOver counts caps that were set or raised though all of them then exceeded the pinned budget; PinsLate processes above their cap for
	// longer than memory.ReclaimSweeps sweeps.
	PinsOver, PinsLate int

	// WaitMean, WaitMost: from a load's ask to its answer. Time50, Time95: from a prompt's start to its end.
	WaitMean, WaitMost, Time50, Time95 time.Duration

	Events int
	Trace  uint64 // a hash over everything that happened: equal runs have equal traces

	waits, times []time.Duration
}

func (r *Result) summarize() {
	var sum time.Duration
	for _, wait := range r.waits {
		sum += wait
		r.WaitMost = max(r.WaitMost, wait)
	}
	if len(r.waits) > 0 {
		r.WaitMean = sum / time.Duration(len(r.waits))
	}
	slices.Sort(r.times)
	if count := len(r.times); count > 0 {
		r.Time50, r.Time95 = r.times[count/2], r.times[count*95/100]
	}
}

// String prints what a run came to in one line.
func (r Result) String() string {
	r.waits, r.times = nil, nil
	type plain Result
	return fmt.Sprintf("%+v", plain(r))
}

// WriteTable prints runs one a line, under one heading a scenario.
func WriteTable(out io.Writer, results []Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	scenario := ""
	for _, r := range results {
		if r.Scenario != scenario {
			scenario = r.Scenario
			fmt.Fprintf(table, "%s\tprompts\tfailed\tover-\tout of\tkilled\tslowed\tforced\tevicted\tidle\twait\twait\tprompt\tprompt\t\n", scenario)
			fmt.Fprint(table, "\t\t\tadmitted\tmemory\tfor RAM\t53x\t\tGiB\tGiB\tmean\tmost\tmedian\t95%\t\n")
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%.0f\t%s\t%s\t%s\t%s\t\n", r.Mode, r.Prompts, r.Failed, r.OverAdmitted,
			r.OutOfMemory, r.KilledForRAM, r.Slowed, r.Forced, gib(r.Evicted), gib(r.IdleReleased),
			brief(r.WaitMean), brief(r.WaitMost), brief(r.Time50), brief(r.Time95))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table of runs: %w", err)
	}
	return nil
}

func gib(bytes memory.Bytes) float64 { return float64(bytes) / float64(memory.GiB) }

// brief rounds a span to what a reader compares.
func brief(span time.Duration) string {
	switch {
	case span == 0:
		return "0"
	case span < time.Second:
		return span.Round(100 * time.Microsecond).String()
	}
	return span.Round(100 * time.Millisecond).String()
}
