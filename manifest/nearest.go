package manifest

import "strings"

// maxNearestLength bounds the names that are compared: longer ones are no misspellings of ours.
const maxNearestLength = 48

// nearest returns the known name that text most probably means, or "" when none is near: a third of its
// letters may differ, two neighbours that changed places count as one.
func nearest(text string, known []string) string {
	if len(text) == 0 || len(text) > maxNearestLength {
		return ""
	}
	folded := foldName(text)
	best, distance := "", len(folded)/3+1
	for _, name := range known {
		if candidate := editDistance(folded, foldName(name), distance); candidate < distance {
			best, distance = name, candidate
		}
	}
	return best
}

// foldName takes away what is easily written differently.
func foldName(name string) string {
	return strings.NewReplacer("_", "-", " ", "-", ".", "-").Replace(strings.ToLower(name))
}

// editDistance is the number of insertions, deletions, replacements and swaps of neighbours between two names,
// or limit when it is not below that.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var rows [3][maxNearestLength + 32]int
	if len(b) >= len(rows[0]) {
		return limit
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, above, above2 := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		lowest := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above2[j-2]+1)
			}
			lowest = min(lowest, row[j])
		}
		if lowest >= limit {
			return limit
		}
	}
	return rows[len(a)%3][len(b)]
}

// Nearest returns the known name that a misspelt one most probably means, or "" when none is near.
func Nearest(text string, known []string) string { return nearest(text, known) }
