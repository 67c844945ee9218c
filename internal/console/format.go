package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// What templates show is written by the functions of this file. Those that return a text leave the
// escaping to the template; those that return template.HTML escape what they are given themselves,
// and write nothing else into it but what stands in this package. Texts from outside go through
// shown in either case, so that none of them can hide or turn round what stands beside it.

// functions are what templates call. Times, durations and numbers are formatted here alone.
var functions = template.FuncMap{
	"filterfields":   filterFields,
	"button":         button,
	"allof":          allOf,
	"ago":            ago,
	"cron":           cronWords,
	"done":           func(o *bulk.Operation) int64 { return o.Done + o.Failed + o.Skipped },
	"filestate":      fileState,
	"failure":        failureText,
	"jobstate":       jobState,
	"keystate":       func(k account.Key, now time.Time) string { return k.State(now) },
	"entryduration":  lengthOf,
	"pointer":        func(l job.DeadLetter) *job.DeadLetter { return &l },
	"settingkey":     settingKey,
	"queueorders":    func() []field { return queueOrders },
	"phase":          phaseWord,
	"queue":          queueName,
	"settingsource":  sourceOf,
	"confirm":        confirmButton,
	"operationtitle": operationTitle,
	"verb":           verb,
	"successrate":    func(h admin.Webhook) string { return percent(h.SuccessRate()) },
	"seconds":        formatSeconds,
	"size":           formatSize,
	"smallest":       smallest,
	"abbreviate":     abbreviate,
	"clock":          clockTime,
	"choice":         func(c choice) string { return c.Value + ": " + c.Meaning },
	"json":           indentJSON,
	"join":           strings.Join,
	"joblink":        jobLink,
	"jobswhere":      jobsWhere,
	"duration":       formatDuration,
	"oneline":        oneLine,
	"number":         number,
	"outcome":        outcomeBadge,
	"pager":          pagerOf,
	"path":           pathOf,
	"period":         periodText,
	"publicname":     contract.PublicName,
	"timestamp":      timestamp,
	"timefield":      timeField,
	"state":          stateBadge,
	"text":           printable,
	"milliseconds":   func(ms int64) string { return formatDuration(time.Duration(ms) * time.Millisecond) },
}

// maxShown bounds how much of one text a page shows, in bytes.
const maxShown = 64 << 10

// printable returns a text as a page shows it: control characters, and marks that change the
// direction of what follows, are visible as their code points. Escaping is left to the template.
func printable(text string) string {
	cut := ""
	if len(text) > maxShown {
		cut = fmt.Sprintf("… (%s bytes in all)", number(len(text)))
		text = text[:maxShown]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
	}
	if !strings.ContainsFunc(text, isHidden) {
		return text + cut
	}
	var b strings.Builder
	for _, r := range text {
		if isHidden(r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + cut
}

// isHidden reports whether a character would not be seen, or would change how others are seen.
func isHidden(r rune) bool {
	return (unicode.IsControl(r) && r != '\n' && r != '\t') || unicode.Is(unicode.Cf, r) ||
		r == utf8.RuneError
}

// escapeHidden writes the hidden characters of JSON as escapes, so that a form shows them where
// they are edited. The JSON means the same: such characters stand in its strings alone.
func escapeHidden(raw string) string {
	if !utf8.ValidString(raw) {
		return raw
	}
	var b strings.Builder
	for _, r := range raw {
		if !isHidden(r) || r == '\r' || r == utf8.RuneError {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// maxIndented is how deep JSON may be nested to be indented. Deeper text grows by more than 64
// times, as each of its lines begins with the spaces of its depth.
const maxIndented = 32

// indentJSON formats JSON for people; a text that is none, is not shown whole or is nested deeply
// stays as it is.
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

// settingKey shows the key of a setting, which may be broken behind its dots and underscores.
func settingKey(key string) template.HTML {
	return template.HTML(strings.NewReplacer(".", ".<wbr>", "_", "_<wbr>").Replace(
		template.HTMLEscapeString(key)))
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

// truncate returns the beginning of a text, at most limit characters.
func truncate(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit]) + "…"
}

// abbreviate shows the beginning and the end of a text in about limit characters, for the rows of
// tables, with all of it beside that.
func abbreviate(text string, limit int) template.HTML {
	text = printable(text)
	all := []rune(text)
	if len(all) <= limit+4 {
		return template.HTML(template.HTMLEscapeString(text))
	}
	end := limit / 3
	ends := string(all[:limit-end]) + "…" + string(all[len(all)-end:])
	return template.HTML(`<span title="` + template.HTMLEscapeString(truncate(text, 1000)) + `">` +
		template.HTMLEscapeString(ends) + `</span>`)
}

// oneLine shows a text in a row, which cuts it where it is too long, with all of it beside that.
func oneLine(text string) template.HTML {
	if text == "" {
		return ""
	}
	text = truncate(printable(text), 1000)
	return template.HTML(`<span title="` + template.HTMLEscapeString(text) + `">` +
		template.HTMLEscapeString(truncate(text, 200)) + `</span>`)
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

// pluralize writes a number of things.
func pluralize(n any, noun string) string {
	if text := number(n); text != "1" {
		return text + " " + noun + "s"
	}
	return "1 " + noun
}

// formatDuration formats a duration for people: two units at most.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + formatDuration(-d)
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
		return twoUnits(seconds, 60, "min", 1, "s")
	case d < day:
		return twoUnits(seconds, 3600, "h", 60, "min")
	}
	return twoUnits(seconds, 86400, "d", 3600, "h")
}

// twoUnits formats seconds in two units of so many seconds each; the smaller one is left out where
// it is zero.
func twoUnits(seconds, large int64, largeName string, small int64, smallName string) string {
	text := fmt.Sprintf("%d %s", seconds/large, largeName)
	if rest := seconds % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// ago shows a time as how long it is from now, with the absolute time beside it (CO-006).
func ago(now, at time.Time) template.HTML {
	if at.IsZero() {
		return `<span class="none">never</span>`
	}
	at = at.UTC()
	return template.HTML(`<time datetime="` + timestamp(at) + `" title="` + at.Format("2006-01-02 15:04:05.000 UTC") + `">` + relative(at.Sub(now)) +
		`</time>`)
}

// clockTime shows a time as clocks of a time zone do, "" of UTC.
func clockTime(at time.Time, zone string) string {
	location, err := time.LoadLocation(zone)
	if err != nil {
		location = time.UTC
	}
	return at.In(location).Format("Mon 2006-01-02 15:04:05 MST")
}

// timestamp returns a time as attributes have it.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z") }

// relative says in one unit how far a time is from now. The script does the same while a page is
// open.
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
