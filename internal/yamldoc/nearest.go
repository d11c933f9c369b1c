package yamldoc

import "strings"

// Nearest returns the word that s is most likely a misspelling of, or "" if none is close.
func Nearest(s string, words []string) string {
	if len(s) > 40 {
		return ""
	}
	best, shortest := "", 1+min(2, len(s)/3)
	for _, word := range words {
		if n := distance(strings.ToLower(s), word); n < shortest {
			best, shortest = word, n
		}
	}
	return best
}

// distance returns how many bytes must be inserted, deleted, replaced or swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Shorten cuts a text of the document, which may be long, to a length that an error can quote.
func Shorten(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}
