package setting

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// NameCharacters are what names in settings are made of; some have dots and hyphens as well.
const NameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// maxQuoted bounds how much of an input a problem repeats.
const maxQuoted = 120

// Quote makes any input one line of bounded length.
func Quote(s string) string {
	return strconv.Quote(Shorten(s))
}

// Shorten bounds the length of a text.
func Shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Nearest returns the name that a word was most likely meant to be, the alphabetically first of
// equally similar ones.
func Nearest(word string, names []string) string {
	word = strings.ToLower(Shorten(word))
	best, minDistance, spelled := "", math.MaxInt, math.MaxInt
	for _, n := range slices.Sorted(slices.Values(names)) {
		lower := strings.ToLower(n)
		d := EditDistance(word, lower)
		if m := keyDistance(word, lower, d); m < minDistance || (m == minDistance && d < spelled) {
			best, minDistance, spelled = n, m, d
		}
	}
	return best
}

// keyDistance measures how different a key is from a known one: by the number of different letters,
// or less where only the section or only the rest is wrong.
func keyDistance(word, name string, edits int) int {
	wordHead, nameHead := word, name
	if i := strings.IndexByte(word, '.'); i >= 0 {
		wordHead = word[:i]
	}
	if i := strings.IndexByte(name, '.'); i >= 0 {
		nameHead = name[:i]
	}
	d := min(edits, 2+EditDistance(wordHead, nameHead))
	tail := EditDistance(word[strings.LastIndexByte(word, '.')+1:],
		name[strings.LastIndexByte(name, '.')+1:])
	if tail <= 1 {
		d = min(d, 1+tail)
	}
	return d
}

// EditDistance returns the least number of edits from a to b: letters that are inserted, deleted,
// replaced, or exchanged with their neighbor (optimal string alignment).
func EditDistance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// Printable quotes what would break a line of text.
func Printable(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Closest returns the name that a word was most likely meant to be. ok reports that it is similar
// enough for a hint.
func Closest(word string, names []string) (name string, ok bool) {
	word = strings.ToLower(Shorten(word))
	name = Nearest(word, names)
	return name, name != "" && EditDistance(word, strings.ToLower(name)) <= min(2, (len(word)+1)/3)
}
