package envbuild

import (
	"runtime"
	"strings"
)

// lastLine is the last line of a text that is not blank.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// shorten cuts a text for a message, at a character.
func shorten(text string, length int) string {
	runes := []rune(strings.TrimSpace(text))
	if len(runes) <= length {
		return string(runes)
	}
	return string(runes[:length]) + "..."
}

// environValue is the value of a variable in NAME=value lines; the last one counts, as it does for a process.
func environValue(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		key, value, found := strings.Cut(environ[i], "=")
		if found && (key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name)) {
			return value
		}
	}
	return ""
}
