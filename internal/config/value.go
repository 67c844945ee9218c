package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// input is a value as it was written: text from the environment, a flag or the defaults, or a value
// of TOML.
type input struct {
	raw    any
	isText bool // raw is a string that may stand for a value of any type
}

// value is the field of one setting and the rules for it.
type value interface {
	// set stores the input. When the input is invalid, it changes nothing and returns what is
	// expected.
	set(input) error
	// show returns the stored value as text, with secrets masked. set accepts that text unless it
	// is masked.
	show() string
}

// textValue returns the input if it is a string, from any layer.
func (in input) textValue() (string, bool) {
	s, ok := in.raw.(string)
	return s, ok
}

// pathValue is the path of a file or directory. An optional path may be empty.
type pathValue struct {
	p        *string
	optional bool
}

func (v pathValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || strings.ContainsFunc(s, isControl) || (s == "" && !v.optional) {
		return errors.New("expected a path")
	}
	*v.p = s
	return nil
}

func (v pathValue) show() string { return *v.p }

// choiceValue is one word of a list.
type choiceValue struct {
	p     *string
	words []string
}

func (v choiceValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || !slices.Contains(v.words, s) {
		return fmt.Errorf("expected %s", joinAlternatives(v.words))
	}
	*v.p = s
	return nil
}

func (v choiceValue) show() string { return *v.p }

// namesValue is a list of at least one of the allowed names, each once.
type namesValue struct {
	p       *[]string
	allowed []string
}

func (v namesValue) set(in input) error {
	names, ok := in.list()
	if !ok || len(names) == 0 {
		return fmt.Errorf(`expected a list such as %s`, v.example(in))
	}
	for i, n := range names {
		if !slices.Contains(v.allowed, n) {
			return fmt.Errorf("expected names out of %s; unknown %s, did you mean %q?",
				strings.Join(v.allowed, ", "), quote(maskUnknown(n)), nearest(n, v.allowed))
		}
		if slices.Contains(names[:i], n) {
			return fmt.Errorf("expected each name once; %q comes twice", n)
		}
	}
	*v.p = names
	return nil
}

func (v namesValue) example(in input) string {
	if in.isText {
		return strings.Join(v.allowed, ",")
	}
	return fmt.Sprintf("[%q]", v.allowed[0])
}

func (v namesValue) show() string { return strings.Join(*v.p, ",") }

// list reads a TOML array of strings, or comma-separated text.
func (in input) list() ([]string, bool) {
	if s, ok := in.raw.(string); ok && in.isText {
		names := strings.Split(s, ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		return names, true
	}
	items, ok := in.raw.([]any)
	if !ok {
		return nil, false
	}
	names := make([]string, 0, len(items))
	for _, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, false
		}
		names = append(names, s)
	}
	return names, true
}

type boolValue struct{ p *bool }

func (v boolValue) set(in input) error {
	switch {
	case in.raw == true || (in.isText && in.raw == "true"):
		*v.p = true
	case in.raw == false || (in.isText && in.raw == "false"):
		*v.p = false
	default:
		return errors.New("expected true or false")
	}
	return nil
}

func (v boolValue) show() string { return strconv.FormatBool(*v.p) }

type intValue struct {
	p        *int
	min, max int
}

func (v intValue) set(in input) error {
	n, ok := in.integer()
	if !ok || n < int64(v.min) || n > int64(v.max) {
		return fmt.Errorf("expected a whole number from %d to %d", v.min, v.max)
	}
	*v.p = int(n)
	return nil
}

func (v intValue) show() string { return strconv.Itoa(*v.p) }

func (in input) integer() (int64, bool) {
	if s, ok := in.raw.(string); ok && in.isText {
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	n, ok := in.raw.(int64)
	return n, ok
}

// numberValue is a decimal number.
type numberValue struct {
	p        *float64
	min, max float64
}

func (v numberValue) set(in input) error {
	n, ok := in.number()
	inRange := n >= v.min && n <= v.max // false for NaN
	if !ok || !inRange {
		return fmt.Errorf("expected a number from %s to %s", formatNumber(v.min),
			formatNumber(v.max))
	}
	*v.p = n
	return nil
}

func (v numberValue) show() string { return formatNumber(*v.p) }

func (in input) number() (float64, bool) {
	switch n := in.raw.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	case string:
		if !in.isText || strings.Trim(n, "0123456789.eE+-") != "" {
			return 0, false
		}
		f, err := strconv.ParseFloat(n, 64)
		return f, err == nil
	}
	return 0, false
}

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// statusValue is one HTTP status of a list.
type statusValue struct {
	p       *int
	allowed []int
}

func (v statusValue) set(in input) error {
	n, ok := in.integer()
	if !ok || !slices.Contains(v.allowed, int(n)) {
		words := make([]string, len(v.allowed))
		for i, a := range v.allowed {
			words[i] = strconv.Itoa(a)
		}
		return fmt.Errorf("expected %s", joinAlternatives(words))
	}
	*v.p = int(n)
	return nil
}

func (v statusValue) show() string { return strconv.Itoa(*v.p) }

type durationValue struct {
	p        *time.Duration
	min, max time.Duration
}

func (v durationValue) set(in input) error {
	s, ok := in.textValue()
	d, valid := parseDuration(s)
	if !ok || !valid || d < v.min || d > v.max {
		return fmt.Errorf("expected a duration with its unit, such as 30s or 10m, from %s to %s",
			formatDuration(v.min), formatDuration(v.max))
	}
	*v.p = d
	return nil
}

func (v durationValue) show() string { return formatDuration(*v.p) }

type sizeValue struct {
	p        *int64
	min, max int64
}

func (v sizeValue) set(in input) error {
	s, ok := in.textValue()
	n, valid := parseSize(s)
	if !ok || !valid || n < v.min || n > v.max {
		return fmt.Errorf("expected a size with its unit, such as 64MiB, from %s to %s",
			formatSize(v.min), formatSize(v.max))
	}
	*v.p = n
	return nil
}

func (v sizeValue) show() string { return formatSize(*v.p) }

type secretValue struct{ p *Secret }

// set accepts texts that fit in an Authorization header: a token with a stray line end would never
// match one.
func (v secretValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("expected a string of printable ASCII without spaces or line ends")
	}
	*v.p = NewSecret(s)
	return nil
}

func (v secretValue) show() string { return v.p.String() }

type storeValue struct{ p *StoreURL }

func (v storeValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || (s != sqliteStore && !validPostgresURL(s)) {
		return errors.New("expected sqlite, or postgres://USER:PASSWORD@HOST:PORT/DATABASE " +
			"with / ? # @ and % in the password percent-encoded")
	}
	*v.p = NewStoreURL(s)
	return nil
}

func (v storeValue) show() string { return v.p.String() }

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// joinAlternatives writes "a", "a or b", "a, b or c".
func joinAlternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
