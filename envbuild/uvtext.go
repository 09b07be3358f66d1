package envbuild

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

// uvProgress turns a line of uv's into what is being done now, "" for lines that say nothing of it. Without a
// terminal uv names the larger downloads and what it compiles.
func uvProgress(line string) string {
	text := strings.TrimSpace(line)
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "Downloading":
		return "downloading " + rest
	case "Building":
		return "compiling " + rest
	case "Built":
		return "compiled " + rest
	case "Downloaded":
		return "downloaded " + rest
	case "Updating", "Cloning", "Updated":
		return strings.ToLower(word) + " " + rest
	case "Prepared":
		return "linking"
	}
	return ""
}

// reasonLimit keeps a reason to what a person reads; the log has the rest.
const reasonLimit = 1200

// uvReason picks uv's reason for a failure out of its output: its error and causes, joined, without drawing
// characters, and the last words of a compiler.
func uvReason(output string, err error) string {
	var reasons, compiler []string
	inStderr := false
	collecting := false
	for line := range strings.Lines(output) {
		text := strings.TrimSpace(strings.Map(dropDrawing, line))
		switch {
		case text == "":
			inStderr = false
			continue
		case text == "[stderr]":
			inStderr, collecting = true, false
			continue
		case text == "[stdout]":
			inStderr, collecting = false, false
			continue
		case strings.HasPrefix(text, "hint:"), strings.HasPrefix(text, "warning:"):
			inStderr, collecting = false, false
			continue
		}
		if inStderr {
			compiler = append(compiler, text)
			continue
		}
		if rest, found := cutAny(text, "error:", "cause:", "Caused by:"); found {
			reasons, collecting = append(reasons, rest), true
			continue
		}
		if strings.Contains(line, "×") || strings.Contains(line, "╰─▶") || strings.Contains(line, "├─▶") {
			reasons, collecting = append(reasons, text), true
			continue
		}
		if collecting { // a sentence goes on in the next line
			reasons[len(reasons)-1] += " " + text
		}
	}
	reason := strings.Join(reasons, "; ")
	if len(compiler) > 3 {
		compiler = compiler[len(compiler)-3:]
	}
	if len(compiler) > 0 {
		reason += " (the package's build said: " + strings.Join(compiler, " | ") + ")"
	}
	return shorten(cmp.Or(reason, lastLine(output), err.Error()), reasonLimit)
}

func cutAny(text string, prefixes ...string) (string, bool) {
	for _, prefix := range prefixes {
		if rest, found := strings.CutPrefix(text, prefix); found {
			return strings.TrimSpace(rest), true
		}
	}
	return text, false
}

// dropDrawing removes the tree that older versions of uv draw around causes.
func dropDrawing(r rune) rune {
	if strings.ContainsRune("×╰─▶│├", r) {
		return -1
	}
	return r
}

// countPackages says how many packages a lock file holds.
func countPackages(lock string) string {
	content, err := os.ReadFile(lock)
	if err != nil {
		return "packages"
	}
	return fmt.Sprintf("%d packages", strings.Count(string(content), "[[package]]")-1) // the project is one
}
