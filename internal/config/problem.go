package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is one error in the settings, which prevents the start.
type Problem struct {
	Key    string // the setting; empty when the file as a whole cannot be read
	Origin string // the layer and place where it was written
	Text   string // a sentence that names both, without credentials

	err error
}

// Error contains all problems that Load found, sorted by key.
type Error struct{ Problems []Problem }

// Error writes one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = "config: " + p.Text
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the causes that are errors of the file system.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, p := range e.Problems {
		if p.err != nil {
			errs = append(errs, p.err)
		}
	}
	return errs
}

func newError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(a.Text, b.Text))
	})
	return &Error{Problems: problems}
}

// unknownKey is the problem of a key that does not exist, with the most similar one as a hint.
func unknownKey(name, origin string) Problem {
	var names []string
	for _, k := range keys {
		if !isSection(name) || strings.HasPrefix(k.name, name+".") {
			names = append(names, k.name)
		}
	}
	similar := nearest(name, append(names, similarNamedKeys(name)...))
	hint := strconv.Quote(similar)
	if strings.HasPrefix(origin, "environment ") {
		hint += " (" + envName(similar) + ")"
	}
	return Problem{Key: name, Origin: origin,
		Text: fmt.Sprintf("unknown key %s (%s); did you mean %s?%s", quote(name), origin, hint,
			nameHint(similar))}
}

// wrongValue is the problem of a value that is refused. Values that may be secrets are masked.
func wrongValue(k key, v value, in input, origin string, err error) Problem {
	shown := mask
	switch v.(type) {
	case secretValue, signingValue, entryValue, objectsValue:
		// A wrong URL of objects may contain an access key.
	case storeValue:
		shown = formatRaw(in.raw, maskStore)
	default:
		shown = formatRaw(in.raw, maskUnknown)
	}
	return Problem{Key: k.name, Origin: origin,
		Text: fmt.Sprintf("wrong value for %q (%s): %s; %v", k.name, origin, shown, err)}
}

// formatRaw returns a value similar to its spelling in the source.
func formatRaw(raw any, mask func(string) string) string {
	switch v := raw.(type) {
	case string:
		return quote(mask(v))
	case []any:
		items := make([]string, 0, min(len(v), 8))
		for _, item := range v[:min(len(v), 8)] {
			items = append(items, formatRaw(item, mask))
		}
		if len(v) > len(items) {
			items = append(items, "…")
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprint(v)
	}
}

// maxQuoted bounds how much of an input a problem repeats.
const maxQuoted = 120

// quote makes any input one line of bounded length.
func quote(s string) string {
	return strconv.Quote(shorten(s))
}

func shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// nearest returns the name that a word was most likely meant to be, the alphabetically first of
// equally similar ones.
func nearest(word string, names []string) string {
	word = strings.ToLower(shorten(word))
	best, minDistance, spelled := "", math.MaxInt, math.MaxInt
	for _, n := range slices.Sorted(slices.Values(names)) {
		lower := strings.ToLower(n)
		d := editDistance(word, lower)
		if m := keyDistance(word, lower, d); m < minDistance || (m == minDistance && d < spelled) {
			best, minDistance, spelled = n, m, d
		}
	}
	return best
}

// keyDistance measures how different a key is from a known one: by the number of different letters,
// or less where only the section or only the rest is wrong.
func keyDistance(word, name string, letters int) int {
	wordHead, nameHead := word, name
	if i := strings.IndexByte(word, '.'); i >= 0 {
		wordHead = word[:i]
	}
	if i := strings.IndexByte(name, '.'); i >= 0 {
		nameHead = name[:i]
	}
	d := min(letters, 2+editDistance(wordHead, nameHead))
	tail := editDistance(word[strings.LastIndexByte(word, '.')+1:],
		name[strings.LastIndexByte(name, '.')+1:])
	if tail <= 1 {
		d = min(d, 1+tail)
	}
	return d
}

// editDistance returns the least number of edits from a to b: letters that are inserted, deleted,
// replaced, or exchanged with their neighbor (optimal string alignment).
func editDistance(a, b string) int {
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
