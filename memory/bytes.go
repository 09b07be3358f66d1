package memory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a signed number of bytes: shortfalls and differences are negative, sizes are not.
type Bytes int64

// Binary multiples, as ComfyUI counts.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// String prints the number in the largest unit that leaves a whole part, with two digits: "7.60 GiB", "-3.00 MiB".
func (b Bytes) String() string {
	magnitude := math.Abs(float64(b))
	for _, unit := range []struct {
		name string
		size Bytes
	}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}} {
		if magnitude >= float64(unit.size) {
			return strconv.FormatFloat(float64(b)/float64(unit.size), 'f', 2, 64) + " " + unit.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// Size is an amount as an operator writes it: a number of bytes, or a share of something whose size the machine knows.
// The zero Size means "not set".
type Size struct {
	Bytes   Bytes   // used when Percent is 0
	Percent float64 // above 0, at most 100
}

// Set tells whether the operator wrote anything.
func (s Size) Set() bool { return s != Size{} }

// Of resolves the size against a whole, in bytes, rounded down.
func (s Size) Of(whole Bytes) Bytes {
	if s.Percent > 0 {
		return Bytes(float64(whole) * s.Percent / 100)
	}
	return s.Bytes
}

// String prints the size so that ParseSize reads it back.
func (s Size) String() string {
	if s.Percent > 0 {
		return strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
	}
	for _, unit := range sizeUnits {
		if s.Bytes != 0 && unit.name != "B" && s.Bytes%unit.size == 0 {
			return strconv.FormatInt(int64(s.Bytes/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(s.Bytes), 10) + "B"
}

// sizeUnits are the suffixes that ParseSize knows, the largest first, "B" last.
var sizeUnits = []struct {
	name string
	size Bytes
}{
	{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// ParseSize reads "8GiB", "512 MiB", "1.5GB", "800000000" or "40%". A size must be above zero: a cap of nothing could
// never load anything, and a pin cap of zero makes ComfyUI leak every pin it holds.
func ParseSize(text string) (Size, error) {
	fail := func(why string) (Size, error) {
		return Size{}, fmt.Errorf("size %q %s: write a number with a unit, such as \"8GiB\", or a share, such as \"40%%\"", text, why)
	}
	trimmed := strings.TrimSpace(text)
	if number, ok := strings.CutSuffix(trimmed, "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch {
		case err != nil || math.IsNaN(percent) || math.IsInf(percent, 0):
			return fail("has no number before the percent sign")
		case percent <= 0 || percent > 100:
			return fail("is not between 0% and 100%")
		}
		return Size{Percent: percent}, nil
	}
	factor, number := Bytes(1), trimmed
	for _, unit := range sizeUnits {
		if rest, ok := strings.CutSuffix(trimmed, unit.name); ok {
			factor, number = unit.size, strings.TrimSpace(rest)
			break
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
		return fail("is not a number with a known unit (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, %)")
	case value <= 0:
		return fail("is not above zero")
	case value*float64(factor) >= math.MaxInt64:
		return fail("is larger than any machine")
	case value*float64(factor) < 1:
		return fail("is less than one byte")
	}
	return Size{Bytes: Bytes(value * float64(factor))}, nil
}
