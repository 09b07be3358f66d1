package envbuild

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	pythonVersionPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)?$`)
	numericPrefix        = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*`)
)

// isPythonVersion accepts "3.12" and "3.12.1".
func isPythonVersion(text string) bool { return pythonVersionPattern.MatchString(text) }

// numericVersion cuts a version after its numbers: "3.12.1.final.0" -> "3.12.1", "3.13.0rc1" -> "3.13.0".
func numericVersion(text string) string {
	parts := strings.Split(numericPrefix.FindString(strings.TrimSpace(text)), ".")
	if len(parts) > 3 {
		parts = parts[:3]
	}
	return strings.Join(parts, ".")
}

// minorVersion is the first two numbers: "3.12.1" -> "3.12". It is empty when there are fewer.
func minorVersion(version string) string {
	parts := strings.Split(numericPrefix.FindString(version), ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// publicVersion is a version without its local part: "2.10.0+cu128" -> "2.10.0".
func publicVersion(version string) string {
	public, _, _ := strings.Cut(version, "+")
	return public
}

// versionMatches reports whether a version is the wanted one or, where the wanted one has fewer numbers,
// begins with it: 3.12 is matched by 3.12.1 and not by 3.1.
func versionMatches(version, wanted string) bool {
	return version == wanted || strings.HasPrefix(version, wanted+".")
}

// compareVersions orders versions by their numbers alone.
func compareVersions(a, b string) int {
	left, right := strings.Split(numericVersion(a), "."), strings.Split(numericVersion(b), ".")
	for i := range max(len(left), len(right)) {
		var l, r int
		if i < len(left) {
			l, _ = strconv.Atoi(left[i])
		}
		if i < len(right) {
			r, _ = strconv.Atoi(right[i])
		}
		if l != r {
			return l - r
		}
	}
	return 0
}

var separators = regexp.MustCompile(`[-_.]+`)

// normalizeName is a package's name as indexes and files compare it: lower case, runs of "-", "_" and "." one dash.
func normalizeName(name string) string {
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}

// isExactly reports whether a version is the wanted one, or begins with it where that ends in ".*".
func isExactly(version, wanted string) bool {
	if prefix, wild := strings.CutSuffix(wanted, ".*"); wild {
		return versionMatches(version, prefix)
	}
	return version == wanted
}
