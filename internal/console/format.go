package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/job"
)

// functions are what templates call. Times, durations and numbers are formatted here alone.
var functions = template.FuncMap{
	"act":      act,
	"ago":      ago,
	"done":     func(o *bulk.Operation) int64 { return o.Done + o.Failed + o.Skipped },
	"failure":  failureText,
	"jobstate": jobState,
	"keystate": func(k account.Key, now time.Time) string { return k.State(now) },
	"length":   lengthOf,
	"letter":   func(l job.DeadLetter) *job.DeadLetter { return &l },
	"orders": func() map[string]string {
		return map[string]string{"": "by name", "age": "oldest job first", "depth": "most ready first",
			"failures": "most failures first"}
	},
	"rate":    func(h admin.Webhook) string { return percent(h.SuccessRate()) },
	"seconds": formatSeconds,
	"size":    formatSize,
	"changed": changedMembers,
	"json":    indentJSON,
	"join":    strings.Join,
	"joblink": jobLink,
	"lasted":  lasted,
	"number":  number,
	"outcome": outcomeMark,
	"path":    pathOf,
	"period":  periodText,
	"public":  admin.PublicContract,
	"state":   stateMark,
	"text":    shown,
}

// maxShown bounds how much of one text a page shows, in bytes.
const maxShown = 64 << 10

// shown returns a text as a page shows it: control characters, and marks that change the direction
// of what follows, are visible as their code points. Escaping is left to the template.
func shown(text string) string {
	cut := ""
	if len(text) > maxShown {
		cut = fmt.Sprintf("… (%s bytes in all)", number(len(text)))
		text = text[:maxShown]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
	}
	hostile := func(r rune) bool {
		return (unicode.IsControl(r) && r != '\n' && r != '\t') || unicode.Is(unicode.Cf, r) ||
			r == utf8.RuneError
	}
	if strings.IndexFunc(text, hostile) < 0 {
		return text + cut
	}
	var b strings.Builder
	for _, r := range text {
		if hostile(r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + cut
}

// maxIndented is how deep JSON may be nested to be indented. Deeper text grows by more than 64
// times, as each of its lines begins with the spaces of its depth.
const maxIndented = 32

// indentJSON formats JSON for people; what is none, is not shown whole or is nested deeply stays as
// it is.
func indentJSON(raw []byte) string {
	var b bytes.Buffer
	if len(raw) == 0 {
		return "null"
	}
	if len(raw) > maxShown || depthOf(raw) > maxIndented || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// depthOf returns how deep JSON is nested. Brackets in its strings count too, which is enough to
// bound what indenting makes of it.
func depthOf(raw []byte) int {
	depth, deepest := 0, 0
	for _, c := range raw {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		deepest = max(deepest, depth)
	}
	return deepest
}

// changedMembers says in a few words what differs between two states of the audit.
func changedMembers(before, after json.RawMessage) string {
	var from, to map[string]json.RawMessage
	if json.Unmarshal(before, &from) != nil || json.Unmarshal(after, &to) != nil {
		return "details"
	}
	var words []string
	for name, value := range to {
		if !bytes.Equal(from[name], value) {
			words = append(words, name+": "+short(string(from[name]), 40)+" → "+short(string(value), 40))
		}
	}
	if len(words) == 0 {
		return "details"
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// formatSize formats a number of bytes.
func formatSize(n int64) string {
	const unit = 1024
	if n < unit {
		return number(n) + " B"
	}
	value, names := float64(n)/unit, "KMGTP"
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + names[:1] + "iB"
}

// short returns the beginning of a text, at most so many characters.
func short(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit]) + "…"
}

// number formats a whole number with a thin space between thousands.
func number(n any) string {
	digits, sign := fmt.Sprint(n), ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return sign + digits
}

// lasted formats a duration for people: two units at most.
func lasted(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + lasted(-d)
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	const day = 24 * time.Hour
	seconds := int64(math.Round(d.Seconds()))
	switch d = time.Duration(seconds) * time.Second; {
	case d < time.Minute:
		return fmt.Sprintf("%d s", seconds)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", seconds/60, seconds%60)
	case d < day:
		return fmt.Sprintf("%d h %d min", seconds/3600, seconds%3600/60)
	}
	return fmt.Sprintf("%d d %d h", seconds/86400, seconds%86400/3600)
}

// ago shows a time as how long it is from now, with the absolute time beside it (CO-006).
func ago(now, at time.Time) template.HTML {
	if at.IsZero() {
		return `<span class="none">never</span>`
	}
	at = at.UTC()
	return template.HTML(`<time datetime="` + at.Format("2006-01-02T15:04:05.000000Z") +
		`" title="` + at.Format("2006-01-02 15:04:05.000 UTC") + `">` + relative(at.Sub(now)) +
		`</time>`)
}

// relative says in one unit how far a time is from now.
func relative(d time.Duration) string {
	length := d.Abs()
	text := ""
	switch {
	case length < time.Second:
		return "now"
	case length < time.Minute:
		text = strconv.Itoa(int(length.Seconds())) + " s"
	case length < time.Hour:
		text = strconv.Itoa(int(length.Minutes())) + " min"
	case length < 48*time.Hour:
		text = strconv.Itoa(int(length.Hours())) + " h"
	default:
		text = strconv.Itoa(int(length.Hours()/24)) + " d"
	}
	if d > 0 {
		return "in " + text
	}
	return text + " ago"
}
