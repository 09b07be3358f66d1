package main

import (
	"fmt"
	"strings"
	"time"
)

func containsWord(text, word string) bool { return strings.Contains(text, word) }

func trimmed(text string) string { return strings.TrimRight(text, "\n") }

// age says how long ago or for how long, in at most two units: 850ms, 12s, 3m40s, 5h2m, 3d4h.
func age(duration time.Duration) string {
	switch {
	case duration < 0:
		return "0s"
	case duration < time.Second:
		return fmt.Sprintf("%dms", duration.Milliseconds())
	case duration < time.Minute:
		return fmt.Sprintf("%ds", int(duration.Seconds()))
	case duration < time.Hour:
		return fmt.Sprintf("%dm%ds", int(duration.Minutes()), int(duration.Seconds())%60)
	case duration < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(duration.Hours()), int(duration.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(duration.Hours())/24, int(duration.Hours())%24)
}

// size writes bytes with a binary unit: 512 B, 3.4 MiB, 1.2 GiB.
func size(bytes int64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value := float64(bytes)
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		value /= 1024
		if value < 1024 {
			return fmt.Sprintf("%.1f %s", value, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", value/1024)
}

// dash stands for what is not known or does not apply.
func dash(text string) string {
	if text == "" || text == "0" {
		return "-"
	}
	return text
}
