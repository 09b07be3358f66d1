package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
)

// HostState is what a host says about itself when it registers. Every field is optional; what is absent is not
// mirrored.
type HostState struct {
	ComfyUIVersion   string `json:"comfyui_version,omitempty"`
	ComfyUIDirectory string `json:"comfyui_directory,omitempty"`
	UserDirectory    string `json:"user_directory,omitempty"`
	// Arguments are the resolved values of comfy.cli_args.args by attribute name, as JSON: enum members as their
	// values, sets as lists. Names that are not mirrored may be among them.
	Arguments map[string]json.RawMessage `json:"args,omitempty"`
	// Attention is the attention backend that the host resolved, without its function's prefix: "sage", "pytorch" ...
	Attention string `json:"attention,omitempty"`
	// PagerEnabled is comfy.memory_management.aimdo_enabled.
	PagerEnabled *bool  `json:"aimdo_enabled,omitempty"`
	PagerVersion string `json:"aimdo_version,omitempty"`
	// ReserveBytes is comfy.model_management.EXTRA_RESERVED_VRAM; zero and negative values are values.
	ReserveBytes *int64 `json:"reserve_bytes,omitempty"`
	// VRAMState is the name of comfy.model_management.vram_state.
	VRAMState string `json:"vram_state,omitempty"`
	// LogLevel is the level of the host's root logger, in the numbers of Python's logging.
	LogLevel *int `json:"log_level,omitempty"`
}

// Problem says which part of a host's report could not be used, and why.
type Problem struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// DecodeHostState reads a host's report. It never fails as a whole: a field of another type than expected is left out
// and named among the problems, and unknown fields are ignored, so that hosts of other versions still register.
func DecodeHostState(document []byte) (HostState, []Problem) {
	var state HostState
	if document = bytes.TrimSpace(document); len(document) == 0 || bytes.Equal(document, []byte("null")) {
		return state, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return state, []Problem{{Name: "host state", Reason: fmt.Sprintf("not a JSON object: %v", err)}}
	}
	targets := map[string]func(json.RawMessage) error{
		"comfyui_version":   into(&state.ComfyUIVersion),
		"comfyui_directory": into(&state.ComfyUIDirectory),
		"user_directory":    into(&state.UserDirectory),
		"args":              into(&state.Arguments),
		"attention":         into(&state.Attention),
		"aimdo_enabled":     into(&state.PagerEnabled),
		"aimdo_version":     into(&state.PagerVersion),
		"reserve_bytes":     into(&state.ReserveBytes),
		"vram_state":        into(&state.VRAMState),
		"log_level":         into(&state.LogLevel),
	}
	var problems []Problem
	for name, field := range fields {
		decode, known := targets[name]
		if !known {
			continue
		}
		if err := decode(field); err != nil {
			problems = append(problems, Problem{Name: name, Reason: fmt.Sprintf("has an unexpected value: %v", err)})
		}
	}
	sort.Slice(problems, func(i, j int) bool { return problems[i].Name < problems[j].Name })
	return state, problems
}

// into decodes into a target that stays as it is when decoding fails.
func into[T any](target *T) func(json.RawMessage) error {
	return func(field json.RawMessage) error {
		var value T
		if err := json.Unmarshal(field, &value); err != nil {
			return err
		}
		*target = value
		return nil
	}
}
