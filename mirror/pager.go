package mirror

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// isOff reports whether a switch is off: by a word, or because it is not set. Any other word means on.
func isOff(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "", "0", "false", "no", "off":
		return true
	}
	return false
}

// addPager offers how the host's pager and memory are set up.
func (b *builder) addPager(host HostState) {
	offer := func(name, value string) { b.offer(name, value, rankHost, FromHost, "") }
	if host.PagerEnabled != nil {
		offer(variableWorkerPager, digit(*host.PagerEnabled))
	}
	if host.PagerVersion != "" {
		offer(variablePagerVersion, host.PagerVersion)
	}
	if host.ReserveBytes != nil {
		offer(variableReserve, strconv.FormatInt(*host.ReserveBytes, 10))
	}
	b.offerBytes(variableSimpleHeadroom, "reserve_vram", host.Arguments)
	b.offerBytes(variableHeadroom, "vram_headroom", host.Arguments)
	if host.Arguments != nil {
		offer(variablePagerNVML, digit(!isTrue(host.Arguments["disable_nvml_pressure"])))
		if isTrue(host.Arguments["cpu"]) {
			offer(variableCPU, "1")
		}
	}
	if state := vramState(host); state != "" {
		if slices.Contains(vramStates, state) {
			offer(variableVRAMState, state)
		} else {
			b.withhold(variableVRAMState, FromHost, fmt.Sprintf("%q is no state that ComfyUI knows", state))
		}
	}
}

// offerBytes offers a flag that counts GiB as whole bytes, cut as Python's int() cuts. A flag that is None was not
// given.
func (b *builder) offerBytes(name, flag string, arguments map[string]json.RawMessage) {
	value, given := arguments[flag]
	if !given || string(value) == "null" {
		return
	}
	gibibytes, err := strconv.ParseFloat(string(value), 64)
	if bytes := gibibytes * (1 << 30); err == nil && math.Abs(bytes) < math.MaxInt64 {
		b.offer(name, strconv.FormatInt(int64(bytes), 10), rankHost, FromHost, "")
		return
	}
	b.withhold(name, FromHost, fmt.Sprintf("the host's %s is %s, which is no number of GiB", flag, value))
}

// vramState is the host's state, or what its flags ask for: ComfyUI takes them in this order.
func vramState(host HostState) string {
	if host.VRAMState != "" {
		return host.VRAMState
	}
	for _, rule := range []struct{ flag, state string }{
		{"cpu", "DISABLED"}, {"lowvram", "LOW_VRAM"}, {"novram", "NO_VRAM"},
		{"highvram", "HIGH_VRAM"}, {"gpu_only", "HIGH_VRAM"},
	} {
		if isTrue(host.Arguments[rule.flag]) {
			return rule.state
		}
	}
	return ""
}

// pager says what came of variableWorkerPager.
func (b *builder) pager() Pager {
	switch decided, found := b.value(variableWorkerPager); {
	case !found:
		return Pager{Source: FromDefault, Reason: "the host says nothing of its pager"}
	case isOff(decided.value):
		return Pager{Source: decided.source, Reason: fmt.Sprintf("%s=%s", variableWorkerPager, decided.value)}
	default:
		return Pager{Enabled: true, Source: decided.source, Reason: fmt.Sprintf("%s=%s", variableWorkerPager, decided.value)}
	}
}

func digit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// isTrue reports whether a flag's JSON is true.
func isTrue(value json.RawMessage) bool { return string(value) == "true" }
