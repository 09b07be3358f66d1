package manifest

import (
	"fmt"
	"time"
)

// OptionKey describes one key of [options], which the settings file has for each environment as well.
type OptionKey struct {
	Name    string // "call_silence", "memory.vram"
	Kind    OptionKind
	Values  []string // of a Choice
	Example string   // as TOML
	Doc     string
	limit   func(*Options) **time.Duration
	amount  func(*Options) **Amount
	choice  func(*Options) **string
}

// OptionKind is what kind of value an option takes.
type OptionKind int

const (
	// Limit is a duration: "90s", "10m", a number of seconds, or 0 for none.
	Limit OptionKind = iota + 1
	// Cap is an Amount: "8GiB" or "40%".
	Cap
	// Choice is one of a few words.
	Choice
)

// OptionKeys are all keys of [options], in the order in which they are shown.
var OptionKeys = []OptionKey{
	{Name: "health_check_timeout", Kind: Limit, Example: "5", Doc: "how long a worker that was idle for a minute may take to answer a ping before its next call, in seconds",
		limit: func(o *Options) **time.Duration { return &o.HealthCheckTimeout }},
	{Name: "start", Kind: Limit, Example: `"120s"`, Doc: "how long a worker may take until it is ready",
		limit: func(o *Options) **time.Duration { return &o.Start }},
	{Name: "call_silence", Kind: Limit, Example: `"10m"`, Doc: "how long a call may be without a sign of progress",
		limit: func(o *Options) **time.Duration { return &o.CallSilence }},
	{Name: "call_deadline", Kind: Limit, Example: `"1h"`, Doc: "how long a call may take at all",
		limit: func(o *Options) **time.Duration { return &o.CallDeadline }},
	{Name: "cancel_deadline", Kind: Limit, Example: `"30s"`, Doc: "how long a cancelled call may go on until its worker is killed; 0: as long as it likes",
		limit: func(o *Options) **time.Duration { return &o.CancelDeadline }},
	{Name: "stop_grace", Kind: Limit, Example: `"5s"`, Doc: "how long a worker may take to stop by itself",
		limit: func(o *Options) **time.Duration { return &o.StopGrace }},
	{Name: "idle_release", Kind: Limit, Example: `"60s"`, Doc: "idle time after which a worker gives its memory back",
		limit: func(o *Options) **time.Duration { return &o.IdleRelease }},
	{Name: "reap", Kind: Limit, Example: `"30m"`, Doc: "idle time after which a worker's process ends",
		limit: func(o *Options) **time.Duration { return &o.Reap }},
	{Name: "inference", Kind: Choice, Values: []string{InferenceMode, NoGrad, InferenceOff}, Example: `"inference_mode"`,
		Doc:    "what surrounds synchronous node functions, as far as torch is there",
		choice: func(o *Options) **string { return &o.Inference }},
	{Name: "fallback", Kind: Choice, Values: []string{"error", "host"}, Example: `"error"`,
		Doc:    "what happens to the nodes when the environment can not be used",
		choice: func(o *Options) **string { return &o.Fallback }},
	{Name: "memory.vram", Kind: Cap, Example: `"8GiB"`, Doc: "the most VRAM a worker may hold",
		amount: func(o *Options) **Amount { return &o.Memory.VRAM }},
	{Name: "memory.pinned_ram", Kind: Cap, Example: `"40%"`, Doc: "the most pinned RAM a worker may hold",
		amount: func(o *Options) **Amount { return &o.Memory.PinnedRAM }},
	{Name: "memory.ram", Kind: Cap, Example: `"16GiB"`, Doc: "the most resident RAM a worker may hold",
		amount: func(o *Options) **Amount { return &o.Memory.RAM }},
}

// findOption returns the key of a name, or nil.
func findOption(name string) *OptionKey {
	for i := range OptionKeys {
		if OptionKeys[i].Name == name {
			return &OptionKeys[i]
		}
	}
	return nil
}

// IsSet reports whether options have a value for the key.
func (k *OptionKey) IsSet(o *Options) bool {
	switch k.Kind {
	case Limit:
		return *k.limit(o) != nil
	case Cap:
		return *k.amount(o) != nil
	}
	return *k.choice(o) != nil
}

// Set reads the text of a value into options.
func (k *OptionKey) Set(o *Options, text string) error {
	switch k.Kind {
	case Limit:
		limit, err := ParseDuration(text)
		if err != nil {
			return err
		}
		*k.limit(o) = &limit
	case Cap:
		amount, err := ParseAmount(text)
		if err != nil {
			return err
		}
		*k.amount(o) = &amount
	case Choice:
		for _, value := range k.Values {
			if text == value {
				*k.choice(o) = &value
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %v", text, k.Values)
	}
	return nil
}

// Merge returns options in which what over sets takes the place of what o sets.
func (o Options) Merge(over Options) Options {
	for i := range OptionKeys {
		key := &OptionKeys[i]
		if !key.IsSet(&over) {
			continue
		}
		switch key.Kind {
		case Limit:
			*key.limit(&o) = *key.limit(&over)
		case Cap:
			*key.amount(&o) = *key.amount(&over)
		case Choice:
			*key.choice(&o) = *key.choice(&over)
		}
	}
	return o
}

// optionNames are the keys of [options] itself.
var optionNames, memoryNames = func() (names, memory []string) {
	for _, key := range OptionKeys {
		if inner, ok := cutMemory(key.Name); ok {
			memory = append(memory, inner)
		} else {
			names = append(names, key.Name)
		}
	}
	return append(names, "memory"), memory
}()

func cutMemory(name string) (string, bool) {
	const prefix = "memory."
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return name[len(prefix):], true
	}
	return "", false
}
