package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// Error contains all problems that Load found, sorted by key.
type Error struct{ Problems []setting.Problem }

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
		if p.Err != nil {
			errs = append(errs, p.Err)
		}
	}
	return errs
}

// newError sorts the problems and makes an *Error of them; nil without problems.
func newError(problems []setting.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b setting.Problem) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(a.Text, b.Text))
	})
	return &Error{Problems: problems}
}

// unknownKey is the problem of a key that does not exist, with the most similar one as a hint.
func (s *Settings) unknownKey(name, origin string) setting.Problem {
	var names []string
	for _, k := range s.keys {
		if !s.isSection(name) || strings.HasPrefix(k.Name, name+".") {
			names = append(names, k.Name)
		}
	}
	similar := setting.Nearest(name, append(names, s.similarNamedKeys(name)...))
	hint := strconv.Quote(similar)
	if strings.HasPrefix(origin, "environment ") {
		hint += " (" + envName(similar) + ")"
	}
	return setting.Problem{Key: name, Origin: origin,
		Text: fmt.Sprintf("unknown key %s (%s); did you mean %s?%s", setting.Quote(name), origin, hint,
			s.nameHint(similar))}
}

// wrongValue is the problem of a value that is refused. Values that may be secrets are masked.
func wrongValue(k setting.Key, in setting.Input, origin string, err error) setting.Problem {
	shown := setting.Masked
	if !k.Value.Secret {
		shown = formatRaw(in.Raw, maskOf(k))
	}
	return setting.Problem{Key: k.Name, Origin: origin,
		Text: fmt.Sprintf("wrong value for %q (%s): %s; %v", k.Name, origin, shown, err)}
}

// maskOf returns the function that hides secrets within the text of a setting that is no secret as
// a whole, such as the password of a URL.
func maskOf(k setting.Key) func(string) string {
	if k.Value.Mask != nil {
		return k.Value.Mask
	}
	return setting.MaskUnknown
}

// MasksValue reports whether a text that was meant for a setting may hold a secret, so that no
// message repeats it.
func (s *Settings) MasksValue(name, text string) bool {
	k, ok := s.find(name)
	return !ok || k.Value.Secret || maskOf(k)(text) != text
}

// formatRaw returns a value similar to its spelling in the source.
func formatRaw(raw any, mask func(string) string) string {
	switch v := raw.(type) {
	case string:
		return setting.Quote(mask(v))
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
