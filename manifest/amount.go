package manifest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits are the units of sizes, in lower case. Those with an i are powers of 1024, as ComfyUI's own are.
var sizeUnits = map[string]float64{
	"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize reads a size with its unit, such as "8GiB" or "512 MiB", as bytes.
func ParseSize(text string) (int64, error) {
	number, unit := splitUnit(text)
	factor, known := sizeUnits[strings.ToLower(unit)]
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no size: write a number and a unit, such as 8GiB", text)
	case unit == "":
		return 0, fmt.Errorf("%q has no unit: write one of B, KiB, MiB, GiB, TiB behind it", text)
	case !known:
		return 0, fmt.Errorf("%q is no unit of size: write B, KiB, MiB, GiB or TiB", unit)
	case value < 0 || math.IsNaN(value) || value*factor >= 1<<62:
		return 0, fmt.Errorf("%q is out of range", text)
	}
	return int64(value * factor), nil
}

// ParseAmount reads a size, or a share such as "40%".
func ParseAmount(text string) (Amount, error) {
	if number, ok := strings.CutSuffix(strings.TrimSpace(text), "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(percent) {
			return Amount{}, fmt.Errorf("%q is no share: write one such as 40%%", text)
		}
		if percent <= 0 || percent > 100 {
			return Amount{}, fmt.Errorf("%q is out of range: a share is above 0%% and at most 100%%", text)
		}
		return Amount{Percent: percent}, nil
	}
	size, err := ParseSize(text)
	if err != nil {
		return Amount{}, err
	}
	if size == 0 {
		return Amount{}, fmt.Errorf("%q is out of range: a cap is above zero", text)
	}
	return Amount{Bytes: size}, nil
}

// String writes an amount as the files have it.
func (a Amount) String() string {
	if a.Percent > 0 {
		return strconv.FormatFloat(a.Percent, 'g', -1, 64) + "%"
	}
	return FormatSize(a.Bytes)
}

// FormatSize writes bytes in the largest unit that divides them.
func FormatSize(bytes int64) string {
	for _, unit := range []struct {
		name   string
		factor int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes != 0 && bytes%unit.factor == 0 {
			return strconv.FormatInt(bytes/unit.factor, 10) + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10) + "B"
}

// maxDuration bounds limits: what is longer is meant as "never", which is written 0.
const maxDuration = 365 * 24 * time.Hour

// ParseDuration reads a limit: a duration such as "90s" or "10m", or "0". A bare number is a number of seconds.
func ParseDuration(text string) (time.Duration, error) {
	trimmed := strings.TrimSpace(text)
	if seconds, err := strconv.ParseFloat(trimmed, 64); err == nil {
		return seconds2duration(seconds, text)
	}
	duration, err := time.ParseDuration(strings.ReplaceAll(trimmed, " ", ""))
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: write one such as 90s, 10m or 1h30m", text)
	}
	if duration < 0 || duration > maxDuration {
		return 0, fmt.Errorf("%q is out of range: a limit is between 0 (switched off) and a year", text)
	}
	return duration, nil
}

func seconds2duration(seconds float64, text string) (time.Duration, error) {
	if math.IsNaN(seconds) || seconds < 0 || seconds > maxDuration.Seconds() {
		return 0, fmt.Errorf("%q is out of range: a limit is between 0 (switched off) and a year", text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// splitUnit separates a number from the unit behind it.
func splitUnit(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	end := len(text)
	for end > 0 && (text[end-1] < '0' || text[end-1] > '9') && text[end-1] != '.' {
		end--
	}
	return strings.TrimSpace(text[:end]), strings.TrimSpace(text[end:])
}
