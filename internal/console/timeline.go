package console

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
)

// A timeline is drawn to scale over the whole life of a job, as it is the gaps that are asked for:
//
//	   ✕        ✓            the outcome of each attempt, where there is room for its symbol
//	▒▒▒██▒▒▒▒▒▒███           waits hatched, attempts filled
//	• •      •               what else happened: messages, deliveries, operators
//
// All places are shares of the width, which the browser knows and the server does not. Attempts of
// which nothing is kept leave the time before the first known one empty: it was no wait for sure.

// timeline is what happened to a job, as its page shows it: drawn to scale, with a table behind.
type timeline struct {
	SVG       template.HTML
	Legend    []legend // of the lines that are drawn
	Entries   []job.Entry
	Truncated bool
	IsCut     bool // texts of entries are not whole
	// Relatives are dependencies and children, the first ones of each kind.
	Relatives []job.Entry
	// ManyDependencies and ManyChildren are how many the timeline has, where that is more.
	ManyDependencies, ManyChildren int
}

// maxRelatives bounds how many dependencies and how many children the page of a job lists.
const maxRelatives = 50

// timelineOf draws the timeline of a job.
func timelineOf(d *admin.JobDetail, entries []job.Entry, now time.Time) timeline {
	made := timeline{Entries: entries}
	made.ManyDependencies = made.addRelatives(job.EntryDependency)
	made.ManyChildren = made.addRelatives(job.EntryChild)
	made.SVG, made.Legend = newScale(d, entries, now).draw(entries)
	made.cut()
	return made
}

// The page of a job shows at most maxTexts bytes of all texts and errors of its timeline together,
// but of each at least minText characters.
const (
	maxTexts = 256 << 10
	minText  = 100
)

// cut cuts texts and errors, the same length for all, where together they are too long for a page.
func (t *timeline) cut() {
	count, length := 0, 0
	for i := range t.Entries {
		for _, text := range []string{t.Entries[i].Text, t.Entries[i].Error} {
			if text != "" {
				count, length = count+1, length+len(text)
			}
		}
	}
	if t.IsCut = length > maxTexts; !t.IsCut {
		return
	}
	each := max(minText, maxTexts/count)
	t.Entries = slices.Clone(t.Entries)
	for i := range t.Entries {
		e := &t.Entries[i]
		e.Text, e.Error = truncate(e.Text, each), truncate(e.Error, each)
	}
}

// addRelatives adds the first relatives of a kind, and returns how many there are; 0 where these
// are all.
func (t *timeline) addRelatives(kind job.EntryKind) (count int) {
	for _, e := range t.Entries {
		if e.Kind != kind {
			continue
		}
		if count++; count <= maxRelatives {
			t.Relatives = append(t.Relatives, e)
		}
	}
	if count <= maxRelatives {
		return 0
	}
	return count
}

// scale places the times of a job in a picture.
type scale struct {
	from, to   time.Time // of the picture
	finishedAt time.Time // when the job is done, and so waits no longer; now for one that is not
	now        time.Time
	// firstWait is when the first wait began that is known: earlier attempts may not be known.
	firstWait time.Time
}

// newScale returns the scale that has all times of a job.
func newScale(d *admin.JobDetail, entries []job.Entry, now time.Time) scale {
	s := scale{from: d.CreatedAt, finishedAt: d.FinishedAt, now: now}
	if s.finishedAt.IsZero() && d.Job.State != job.StateNone {
		s.finishedAt = now
	}
	if s.finishedAt.Before(s.from) {
		s.finishedAt = s.from
	}
	s.to = s.finishedAt
	known := 0
	for i := range entries {
		if entries[i].Kind == job.EntryAttempt {
			if known++; known == 1 {
				s.firstWait = entries[i].At
			}
		}
		for _, at := range []time.Time{entries[i].At, entries[i].Until} {
			if at.IsZero() {
				continue
			}
			if at.Before(s.from) {
				s.from = at
			}
			if at.After(s.to) {
				s.to = at
			}
		}
	}
	switch {
	case known >= d.Attempts:
		s.firstWait = s.from
	case known == 0:
		s.firstWait = s.finishedAt
	}
	return s
}

// percent returns where a time is, in percent of the width.
func (s *scale) percent(at time.Time) float64 {
	length := s.to.Sub(s.from)
	if length <= 0 {
		return 0
	}
	return 100 * min(1, max(0, float64(at.Sub(s.from))/float64(length)))
}

// end returns when an attempt ended; now for one that runs.
func (s *scale) end(e *job.Entry) time.Time {
	if e.Until.IsZero() {
		return s.now
	}
	return e.Until
}

// minSymbolGap is how far symbols of attempts are from each other at least, in percent of the
// width, so that they can be distinguished in a narrow window.
const minSymbolGap = 4

// outcomeBadges are the words of state.go whose badges the outcomes of attempts have.
var outcomeBadges = map[string]string{job.OutcomeRunning: "running", string(job.Succeeded): "done",
	string(job.Failed): "dead", string(job.Expired): "lost", string(job.Released): "paused",
	string(job.Requeued): "paused", string(job.Canceled): "canceled"}

// outcomeBadge shows the outcome of an attempt.
func outcomeBadge(outcome string) template.HTML {
	if outcome == "" {
		return ""
	}
	class, shape := outcomeShape(outcome)
	return badge(class, shape, outcome)
}

// outcomeShape returns class and shape of the outcome of an attempt. A cause that has none of its
// own took the attempt away, which is not what it was for; an outcome that is not known is "".
func outcomeShape(outcome string) (class, shape string) {
	m := badges[outcomeBadges[outcome]]
	switch {
	case m.shape != "":
		return m.class, m.shape
	case outcome != "":
		return badges["dead"].class, badges["dead"].shape
	}
	return "waiting", ring
}

// draw draws waits hatched, attempts by their outcome and the rest as points below them. Places are
// shares of the width, so that nothing is distorted in a narrow window.
func (s scale) draw(entries []job.Entry) (template.HTML, []legend) {
	var bars, points strings.Builder
	waited, waits, lastSymbol := time.Duration(0), s.firstWait, -100.0
	counts := map[string]int{}
	attempts := 0
	wait := func(until time.Time) {
		if length := until.Sub(waits); length > 0 {
			waited += length
			fmt.Fprintf(&bars, `<rect class="wait" fill="url(#hatch)" x="%.3f%%" y="20" `+
				`width="%.3f%%" height="16"/>`, s.percent(waits), s.percent(until)-s.percent(waits))
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind != job.EntryAttempt {
			if e.Kind != job.EntrySubmitted && e.Kind != job.EntryState {
				fmt.Fprintf(&points, `<circle class="point" cx="%.3f%%" cy="46" r="3"/>`, s.percent(e.At))
			}
			continue
		}
		wait(e.At)
		waits = s.end(e)
		attempts++
		counts[e.Outcome]++
		from, to := s.percent(e.At), s.percent(waits)
		class, shape := outcomeShape(e.Outcome)
		fmt.Fprintf(&bars, `<g class="%s"><rect class="attempt" x="%.3f%%" y="18" width="%.3f%%" `+
			`height="20"/></g>`, class, from, max(to-from, 0.2))
		if middle := (from + to) / 2; middle-lastSymbol >= minSymbolGap {
			lastSymbol = middle
			fmt.Fprintf(&bars, `<svg class="%s" x="%.3f%%" y="2" width="12" height="12" `+
				`overflow="visible"><g transform="translate(-6)">%s</g></svg>`, class,
				min(98.5, max(1.5, middle)), shape)
		}
	}
	wait(s.finishedAt)
	words := "Timeline over " + formatDuration(s.to.Sub(s.from)) + ": waited " + formatDuration(waited) +
		", attempts: " + number(attempts)
	var keys []legend
	if waited > 0 {
		keys = append(keys, legend{Class: "wait", Name: "waits"})
	}
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		class, _ := outcomeShape(outcome)
		keys = append(keys, legend{Class: "attempt " + class, Name: cmp.Or(outcome, "ended")})
		if outcome != "" {
			words += ", " + number(counts[outcome]) + " " + outcome
		}
	}
	if points.Len() > 0 {
		keys = append(keys, legend{Class: "point", Name: "what else happened"})
	}
	return template.HTML(`<svg class="timeline" width="100%" height="74" role="img" aria-label="` +
		template.HTMLEscapeString(words) + `"><defs><pattern id="hatch" width="6" height="6" ` +
		`patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0v6"/></pattern>` +
		`</defs><line class="grid" x2="100%" y1="28" y2="28"/>` + bars.String() + points.String() +
		s.labels() + `</svg>`), keys
}

// labels are the times at both ends.
func (s *scale) labels() string {
	layout := "15:04:05"
	switch length := s.to.Sub(s.from); {
	case length > 24*time.Hour:
		layout = "Jan 2 15:04"
	case length < 10*time.Second:
		layout += ".000"
	}
	return `<text x="0" y="68">` + s.from.UTC().Format(layout) +
		`</text><text x="50%" y="68" text-anchor="middle">` +
		template.HTMLEscapeString(formatDuration(s.to.Sub(s.from))) +
		`</text><text x="100%" y="68" text-anchor="end">` + s.to.UTC().Format(layout) +
		` UTC</text>`
}

// lengthOf shows how long an entry lasted; nothing where that is not known.
func lengthOf(e job.Entry) string {
	length, ok := e.Lasted()
	if !ok {
		return ""
	}
	return formatDuration(length)
}
