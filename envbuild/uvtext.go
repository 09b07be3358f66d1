package envbuild

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// uvProgress follows the lines that uv prints without a terminal: it names larger downloads and what it compiles,
// when they start and when they are done.
type uvProgress struct {
	sizes    map[string]float64 // announced downloads, in bytes
	finished map[string]bool
	building map[string]bool
}

// line says what is being done now, "" for a line that says nothing of it.
func (p *uvProgress) line(line string) string {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	name, size, _ := strings.Cut(rest, " (")
	switch word {
	case "Downloading":
		if p.sizes == nil {
			p.sizes, p.finished = map[string]float64{}, map[string]bool{}
		}
		p.sizes[name] = parseSize(strings.TrimSuffix(size, ")"))
		return p.downloads()
	case "Downloaded":
		if _, announced := p.sizes[name]; !announced {
			return ""
		}
		p.finished[name] = true
		return p.downloads()
	case "Building":
		if p.building == nil {
			p.building = map[string]bool{}
		}
		p.building[name] = true
		return "compiling " + strings.Join(slices.Sorted(maps.Keys(p.building)), ", ")
	case "Built":
		delete(p.building, name)
		if len(p.building) == 0 {
			return "compiled " + name
		}
		return "compiling " + strings.Join(slices.Sorted(maps.Keys(p.building)), ", ")
	case "Updating", "Cloning":
		return strings.ToLower(word) + " " + rest
	case "Prepared":
		return "linking"
	}
	return ""
}

// downloading counts the announced downloads that are not done.
func (p *uvProgress) downloading() int { return len(p.sizes) - len(p.finished) }

// downloads sums up the announced downloads and names the largest that is under way.
func (p *uvProgress) downloads() string {
	var total, done float64
	largest := ""
	for _, name := range slices.Sorted(maps.Keys(p.sizes)) {
		total += p.sizes[name]
		switch {
		case p.finished[name]:
			done += p.sizes[name]
		case largest == "" || p.sizes[name] > p.sizes[largest]:
			largest = name
		}
	}
	text := fmt.Sprintf("downloading, %s of %s in %d of %d files", bytesText(done), bytesText(total), len(p.finished), len(p.sizes))
	if largest != "" {
		text += ", now " + largest
	}
	return text
}

// parseSize reads "873.1MiB", 0 for what is no size.
func parseSize(text string) float64 {
	for unit, factor := range map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1} {
		if number, found := strings.CutSuffix(text, unit); found {
			if value, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil {
				return value * factor
			}
		}
	}
	return 0
}

// bytesText is a size for people.
func bytesText(bytes float64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", bytes/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", bytes/(1<<20))
}

// A resolution is restricted to one platform by its marker; repeating it says nothing to a reader.
var (
	splitPattern      = regexp.MustCompile(`\s*for split \(markers: [^)]*\)`)
	compatiblePattern = regexp.MustCompile("`[^`]*sys_platform[^`]*`-compatible wheels")
)

// reasonLimit keeps a reason to what a person reads; the log has the rest.
const reasonLimit = 1200

// uvReason picks uv's reason for a failure out of its output: its error and causes, joined, without drawing
// characters, and the last words of a compiler.
func uvReason(output string, err error) string {
	output = splitPattern.ReplaceAllString(output, "")
	output = compatiblePattern.ReplaceAllString(output, "wheels for this platform")
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
		case strings.HasPrefix(text, "hint:") && strings.Contains(text, "credentials"):
			// Without it, an index that lets nobody in looks like one that lacks the package.
			reasons, inStderr, collecting = append(reasons, strings.TrimSpace(strings.TrimPrefix(text, "hint:"))), false, false
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
