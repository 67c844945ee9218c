package setting

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/object/name"
)

// The bounds of durations and numbers that have no bound of their own.
const (
	TenYears = 10 * 365 * 24 * time.Hour
	Billion  = 1_000_000_000
)

// Input is a value as it was written: text from the environment, a flag or the defaults, or a value
// of TOML.
type Input struct {
	Raw    any
	IsText bool // Raw is a string that may stand for a value of any type
}

// Value is the field of one setting and the rules for it.
type Value struct {
	// Set stores the input. When the input is invalid, it changes nothing and returns an error that
	// says which input is expected.
	Set func(Input) error
	// Show returns the stored value as text, with secrets masked. Set accepts that text unless it
	// is masked.
	Show func() string
	// Secret says that a refused input may hold a secret, so that no problem repeats it.
	Secret bool
	// Mask hides the secret in a text that was refused; nil means MaskUnknown.
	Mask func(string) string
	// Table, unless nil, says that the value is written as a table. Where there is only text, in
	// the environment and in flags, its entries are keys of their own.
	Table *Table
}

// Table is what a value is that is written as a table.
type Table struct {
	Entries func() map[string]any // a copy of the stored entries, as a file would have them
	// Typed says that an entry that is written as text is read as a file would have it. Else it
	// is a string.
	Typed bool
}

// Text returns the input if it is a string, from any layer.
func (in Input) Text() (string, bool) {
	s, ok := in.Raw.(string)
	return s, ok
}

// Text is a text that valid accepts; expected describes such texts.
func Text(p *string, expected string, valid func(string) bool) Value {
	return Value{
		Set:  setText(expected, valid, func(s string) { *p = s }),
		Show: func() string { return *p },
	}
}

// setText returns the Set of a text that valid accepts.
func setText(expected string, valid func(string) bool, set func(string)) func(Input) error {
	return func(in Input) error {
		s, ok := in.Text()
		if !ok || !valid(s) {
			return errors.New("expected " + expected)
		}
		set(s)
		return nil
	}
}

// orEmpty accepts the empty text as well.
func orEmpty(valid func(string) bool) func(string) bool {
	return func(s string) bool { return s == "" || valid(s) }
}

// Path is the path of a file or directory.
func Path(p *string) Value {
	return Text(p, "a path", func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, isControl)
	})
}

// OptionalPath is a Path or empty.
func OptionalPath(p *string) Value {
	return Text(p, "a path", func(s string) bool { return !strings.ContainsFunc(s, isControl) })
}

// Bucket is the name of a bucket.
func Bucket(p *string) Value { return Text(p, bucketExpected, name.ValidBucket) }

// OptionalBucket is a Bucket or empty.
func OptionalBucket(p *string) Value { return Text(p, bucketExpected, orEmpty(name.ValidBucket)) }

const bucketExpected = "3 to 63 lower-case letters, digits, dots and hyphens"

// Choice is one of some words.
func Choice(p *string, words ...string) Value {
	return Text(p, joinAlternatives(words), func(s string) bool {
		return slices.Contains(words, s)
	})
}

// Names is a list of at least one of the allowed names, each once.
func Names(p *[]string, allowed ...string) Value {
	return Value{
		Set: func(in Input) error {
			names, err := in.names(allowed)
			if err != nil {
				return err
			}
			*p = names
			return nil
		},
		Show: func() string { return strings.Join(*p, ",") },
	}
}

func (in Input) names(allowed []string) ([]string, error) {
	names, ok := in.List()
	if !ok || len(names) == 0 {
		return nil, fmt.Errorf(`expected a list such as %s`, in.example(allowed))
	}
	for i, n := range names {
		if !slices.Contains(allowed, n) {
			return nil, fmt.Errorf("expected names out of %s; unknown %s, did you mean %q?",
				strings.Join(allowed, ", "), Quote(MaskUnknown(n)), Nearest(n, allowed))
		}
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("expected each name once; %q comes twice", n)
		}
	}
	return names, nil
}

func (in Input) example(allowed []string) string {
	if in.IsText {
		return strings.Join(allowed, ",")
	}
	return fmt.Sprintf("[%q]", allowed[0])
}

// List reads a TOML array of strings, or comma-separated text.
func (in Input) List() ([]string, bool) {
	if s, ok := in.Raw.(string); ok && in.IsText {
		names := strings.Split(s, ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		return names, true
	}
	items, ok := in.Raw.([]any)
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

// Bool is true or false.
func Bool(p *bool) Value {
	return Value{
		Set: func(in Input) error {
			switch {
			case in.Raw == true || (in.IsText && in.Raw == "true"):
				*p = true
			case in.Raw == false || (in.IsText && in.Raw == "false"):
				*p = false
			default:
				return errors.New("expected true or false")
			}
			return nil
		},
		Show: func() string { return strconv.FormatBool(*p) },
	}
}

// Int is a whole number.
func Int(p *int, min, max int) Value {
	return Value{
		Set: func(in Input) error {
			n, ok := in.Integer()
			if !ok || n < int64(min) || n > int64(max) {
				return fmt.Errorf("expected a whole number from %d to %d", min, max)
			}
			*p = int(n)
			return nil
		},
		Show: func() string { return strconv.Itoa(*p) },
	}
}

// Integer reads a whole number.
func (in Input) Integer() (int64, bool) {
	if s, ok := in.Raw.(string); ok && in.IsText {
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	n, ok := in.Raw.(int64)
	return n, ok
}

// Number is a decimal number.
func Number(p *float64, min, max float64) Value {
	return Value{
		Set: func(in Input) error {
			n, ok := in.number()
			inRange := n >= min && n <= max // false for NaN
			if !ok || !inRange {
				return fmt.Errorf("expected a number from %s to %s", formatNumber(min),
					formatNumber(max))
			}
			*p = n
			return nil
		},
		Show: func() string { return formatNumber(*p) },
	}
}

func (in Input) number() (float64, bool) {
	switch n := in.Raw.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	case string:
		if !in.IsText || strings.Trim(n, "0123456789.eE+-") != "" {
			return 0, false
		}
		f, err := strconv.ParseFloat(n, 64)
		return f, err == nil
	}
	return 0, false
}

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// Status is one of some HTTP statuses.
func Status(p *int, allowed ...int) Value {
	return Value{
		Set: func(in Input) error {
			n, ok := in.Integer()
			if !ok || !slices.Contains(allowed, int(n)) {
				words := make([]string, len(allowed))
				for i, a := range allowed {
					words[i] = strconv.Itoa(a)
				}
				return fmt.Errorf("expected %s", joinAlternatives(words))
			}
			*p = int(n)
			return nil
		},
		Show: func() string { return strconv.Itoa(*p) },
	}
}

// Duration is a time span, written with its unit.
func Duration(p *time.Duration, min, max time.Duration) Value {
	return Value{
		Set: func(in Input) error {
			s, ok := in.Text()
			d, valid := ParseDuration(s)
			if !ok || !valid || d < min || d > max {
				return fmt.Errorf(
					"expected a duration with its unit, such as 30s or 10m, from %s to %s",
					FormatDuration(min), FormatDuration(max))
			}
			*p = d
			return nil
		},
		Show: func() string { return FormatDuration(*p) },
	}
}

// Size is a number of bytes, written with its unit.
func Size(p *int64, min, max int64) Value {
	return Value{
		Set: func(in Input) error {
			s, ok := in.Text()
			n, valid := parseSize(s)
			if !ok || !valid || n < min || n > max {
				return fmt.Errorf("expected a size with its unit, such as 64MiB, from %s to %s",
					FormatSize(min), FormatSize(max))
			}
			*p = n
			return nil
		},
		Show: func() string { return FormatSize(*p) },
	}
}

// Token is a secret that fits in an Authorization header: a token with a stray line end would never
// match one.
func Token(p *Secret) Value {
	const expected = "a string of printable ASCII without spaces or line ends"
	return SecretText(p, expected, func(s string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
	})
}

// SecretText is a secret that valid accepts; expected describes such texts.
func SecretText(p *Secret, expected string, valid func(string) bool) Value {
	return Value{
		Set:    setText(expected, valid, func(s string) { *p = NewSecret(s) }),
		Show:   func() string { return p.String() },
		Secret: true,
	}
}

// WebhookSecret is a secret in the form of Standard Webhooks, or empty.
func WebhookSecret(p *Secret) Value {
	return SecretText(p, "whsec_ and the base64 of 24 to 64 bytes", func(s string) bool {
		encoded, prefixed := strings.CutPrefix(s, "whsec_")
		plain, err := base64.StdEncoding.DecodeString(encoded)
		if s == "" || err != nil {
			return s == ""
		}
		return prefixed && !strings.ContainsAny(s, "\r\n") && len(plain) >= 24 &&
			len(plain) <= 64
	})
}

// Store is where jobs are stored, in a database of one of the kinds.
func Store(p *StoreURL, kinds []StoreKind) Value {
	return Value{
		Set: func(in Input) error {
			s, ok := in.Text()
			accepts := func(k StoreKind) bool { return k.Accepts(s) }
			if !ok || !slices.ContainsFunc(kinds, accepts) {
				var forms []string
				for _, k := range kinds {
					forms = append(forms, k.Form)
				}
				return errors.New("expected " + strings.Join(forms, ", or "))
			}
			*p = NewStoreURL(s)
			return nil
		},
		Show: func() string { return p.String() },
		Mask: maskStore,
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// joinAlternatives writes "a", "a or b", "a, b or c".
func joinAlternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
