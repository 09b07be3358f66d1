package manifest

import "time"

// Inference modes of options.inference.
const (
	InferenceMode = "inference_mode"
	NoGrad        = "no_grad"
	InferenceOff  = "off"
)

// Options is [options]: limits and caps of one environment's workers. The settings file has the same keys
// for each environment, so one type serves both. A nil field is not set; a limit of zero is switched off.
type Options struct {
	HealthCheckTimeout *time.Duration // how long a worker's answer to a ping may take
	CallSilence        *time.Duration // how long a call may be without a sign of progress
	CallDeadline       *time.Duration // how long a call may take at all
	CancelDeadline     *time.Duration // how long a cancelled call may go on
	Start              *time.Duration // how long a worker may take until it is ready
	StopGrace          *time.Duration // between the polite stop and the kill
	IdleRelease        *time.Duration // idle time after which a worker gives its memory back
	Reap               *time.Duration // idle time after which its process ends
	Inference          *string        // InferenceMode, NoGrad or InferenceOff: what surrounds synchronous node functions
	Fallback           *string        // "error" or "host": what happens to the pack when the environment can not be used
	Memory             MemoryOptions
}

// MemoryOptions is [options.memory]: caps of one worker.
type MemoryOptions struct {
	VRAM      *Amount
	PinnedRAM *Amount
	RAM       *Amount
}

// Amount is a size: of bytes, or a share of what the machine or the card has.
type Amount struct {
	Bytes   int64   // set when Percent is zero
	Percent float64 // above 0, at most 100
}

// Of returns the amount in bytes when the whole is total bytes.
func (a Amount) Of(total int64) int64 {
	if a.Percent > 0 {
		return int64(float64(total) * a.Percent / 100)
	}
	return a.Bytes
}

// MarshalText writes an amount as the files have it.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *Amount) UnmarshalText(text []byte) error {
	amount, err := ParseAmount(string(text))
	if err != nil {
		return err
	}
	*a = amount
	return nil
}
