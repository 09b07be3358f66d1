package memory

import (
	"fmt"
	"time"
)

// Rules are the knobs of admission. Every number that the policy uses beside upstream's stands here.
type Rules struct {
	// Slack is how much more than the shortfall may be asked back, so that the next small ask needs no release of its
	// own. Upstream's own hysteresis on pin pressure is as large. In bytes.
	Slack Bytes
	// SmallestRelease: a party that could give less is not bothered. In bytes.
	SmallestRelease Bytes
	// ContextFloor is what a CUDA context and the library handles cost outside any allocator, in bytes: 276 to 300 MiB
	// were measured on Linux (RTX 3090), 119 MiB on Windows before cuBLAS and cuDNN (RTX 4060 Ti).
	ContextFloor Bytes
	// LieMargin is how far a report may differ from the driver's figure before it is shown, in bytes.
	LieMargin Bytes
	// DryShare: a party whose receipt says less than this share of what it was asked has no more to give.
	DryShare float64

	// ReadingAge is how old a reading of the card may be when an ask is decided.
	ReadingAge time.Duration
	// ReadWait is how long an ask waits for a reading before our own books stand in for it.
	ReadWait time.Duration
	// Debounce is how long a party that answered a release is left alone.
	Debounce time.Duration
	// WorkerAnswer and HostAnswer are how long an idle worker and a host may take over a release before others are
	// asked. A host answers at its executor's next moment.
	WorkerAnswer, HostAnswer time.Duration
	// Forgive is after how long a party that did not answer is asked again: the message may have been lost.
	Forgive time.Duration
	// AskWait is how long an ask without a deadline of its own waits before it goes on under upstream's rules. Circles of
	// waits are broken at once, so what is waited for is somebody who computes; a call may be silent for ten minutes.
	AskWait time.Duration
	// LoadLapse ends the lease of a load that reports neither progress nor its end; WorkLapse that of a computation
	// after its load.
	LoadLapse, WorkLapse time.Duration
	// Overtakes is how many later asks may be granted before an earlier one that does not fit yet.
	Overtakes int
}

// DefaultRules are the figures that comfy-env settled on where it has one, and measured ones elsewhere.
func DefaultRules() Rules {
	return Rules{
		Slack: 256 * MiB, SmallestRelease: 16 * MiB, ContextFloor: 300 * MiB, LieMargin: 512 * MiB, DryShare: 0.25,
		ReadingAge: time.Second, ReadWait: time.Second, Debounce: 2 * time.Second,
		WorkerAnswer: 2 * time.Second, HostAnswer: 10 * time.Second, Forgive: 30 * time.Second,
		AskWait: 5 * time.Minute, LoadLapse: 60 * time.Second, WorkLapse: 10 * time.Minute, Overtakes: 4,
	}
}

// Check says what makes no sense in the rules, nil if nothing does.
func (r Rules) Check() error {
	for name, amount := range map[string]Bytes{
		"slack": r.Slack, "smallest release": r.SmallestRelease, "context floor": r.ContextFloor, "lie margin": r.LieMargin,
	} {
		if amount < 0 {
			return fmt.Errorf("admission rules: the %s is %s; it cannot be negative", name, amount)
		}
	}
	for name, span := range map[string]time.Duration{
		"reading wait": r.ReadWait, "worker answer": r.WorkerAnswer, "host answer": r.HostAnswer, "forgiveness": r.Forgive, "ask wait": r.AskWait,
		"load lapse": r.LoadLapse, "work lapse": r.WorkLapse,
	} {
		if span <= 0 {
			return fmt.Errorf("admission rules: the %s is %s; an ask must be answered in some time above zero", name, span)
		}
	}
	if r.ReadingAge < 0 || r.Debounce < 0 || r.Overtakes < 0 || r.DryShare < 0 || r.DryShare > 1 {
		return fmt.Errorf("admission rules %+v: reading age, debounce and overtakes cannot be negative, the dry share lies between 0 and 1", r)
	}
	return nil
}
