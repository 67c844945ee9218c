package console

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
)

// timeline is what happened to a job, as its page shows it: drawn to scale, with a table behind.
type timeline struct {
	SVG       template.HTML
	Entries   []job.Entry
	Truncated bool
	Relatives []job.Entry // dependencies and children
}

// timelineOf draws the timeline of a job.
func timelineOf(d *admin.JobDetail, entries []job.Entry, now time.Time) timeline {
	made := timeline{Entries: entries}
	for _, e := range entries {
		if e.Kind == job.EntryDependency || e.Kind == job.EntryChild {
			made.Relatives = append(made.Relatives, e)
		}
	}
	made.SVG = newScale(d, entries, now).draw(entries)
	return made
}

// scale places the times of a job in a picture.
type scale struct {
	from, to time.Time // of the picture
	over     time.Time // when the job is over, and so waits no longer; now for one that is not
	now      time.Time
	// waits is when the first wait began that is known: earlier attempts may not be kept.
	waits time.Time
}

// newScale returns the scale that has all times of a job.
func newScale(d *admin.JobDetail, entries []job.Entry, now time.Time) scale {
	s := scale{from: d.CreatedAt, over: d.SettledAt, now: now}
	if s.over.IsZero() && d.Job.State != job.StateNone {
		s.over = now
	}
	if s.over.Before(s.from) {
		s.over = s.from
	}
	s.to = s.over
	kept := 0
	for i := range entries {
		if entries[i].Kind == job.EntryAttempt {
			if kept++; kept == 1 {
				s.waits = entries[i].At
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
	case kept >= d.Attempts:
		s.waits = s.from
	case kept == 0:
		s.waits = s.over
	}
	return s
}

// share returns where a time is, in percent of the width.
func (s *scale) share(at time.Time) float64 {
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

// markGap is how far marks of attempts are from each other at least, in percent of the width, so
// that they can be told from each other in a narrow window.
const markGap = 4

// outcomeMarks are the words of state.go whose marks the outcomes of attempts have.
var outcomeMarks = map[string]string{job.OutcomeRunning: "running", string(job.Succeeded): "done",
	string(job.Failed): "dead", string(job.Expired): "lost", string(job.Released): "paused",
	string(job.Requeued): "paused", string(job.Canceled): "canceled"}

// outcomeMark shows the outcome of an attempt.
func outcomeMark(outcome string) template.HTML {
	if outcome == "" {
		return ""
	}
	m := marks[outcomeMarks[outcome]]
	return mark(m.class, m.shape, outcome)
}

// draw draws waits hatched, attempts by their outcome and the rest as points below them. Places are
// shares of the width, so that nothing is distorted in a narrow window.
func (s scale) draw(entries []job.Entry) template.HTML {
	var bars, points strings.Builder
	waited, waits, lastMark := time.Duration(0), s.waits, -100.0
	counts := map[string]int{}
	attempts := 0
	wait := func(until time.Time) {
		if length := until.Sub(waits); length > 0 {
			waited += length
			fmt.Fprintf(&bars, `<rect class="wait" fill="url(#hatch)" x="%.3f%%" y="20" `+
				`width="%.3f%%" height="16"/>`, s.share(waits), s.share(until)-s.share(waits))
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind != job.EntryAttempt {
			if e.Kind != job.EntrySubmitted && e.Kind != job.EntryState {
				fmt.Fprintf(&points, `<circle class="point" cx="%.3f%%" cy="46" r="3"/>`, s.share(e.At))
			}
			continue
		}
		wait(e.At)
		waits = s.end(e)
		attempts++
		counts[e.Outcome]++
		from, to := s.share(e.At), s.share(waits)
		m := marks[outcomeMarks[e.Outcome]]
		if m.shape == "" {
			m.class, m.shape = "waiting", ring
		}
		fmt.Fprintf(&bars, `<g class="%s"><rect class="attempt" x="%.3f%%" y="18" width="%.3f%%" `+
			`height="20"/></g>`, m.class, from, max(to-from, 0.2))
		if middle := (from + to) / 2; middle-lastMark >= markGap {
			lastMark = middle
			fmt.Fprintf(&bars, `<svg class="%s" x="%.3f%%" y="2" width="12" height="12" `+
				`overflow="visible"><g transform="translate(-6)">%s</g></svg>`, m.class,
				min(98.5, max(1.5, middle)), m.shape)
		}
	}
	wait(s.over)
	words := "Timeline over " + lasted(s.to.Sub(s.from)) + ": waited " + lasted(waited) +
		", attempts: " + number(attempts)
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		if outcome != "" {
			words += ", " + number(counts[outcome]) + " " + outcome
		}
	}
	return template.HTML(`<svg class="timeline" width="100%" height="74" role="img" aria-label="` +
		template.HTMLEscapeString(words) + `"><defs><pattern id="hatch" width="6" height="6" ` +
		`patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0v6"/></pattern>` +
		`</defs><line class="grid" x2="100%" y1="28" y2="28"/>` + bars.String() + points.String() +
		s.labels() + `</svg>`)
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
		template.HTMLEscapeString(lasted(s.to.Sub(s.from))) +
		`</text><text x="100%" y="68" text-anchor="end">` + s.to.UTC().Format(layout) +
		` UTC</text>`
}

// lengthOf shows how long an entry lasted; nothing where that is not known.
func lengthOf(e job.Entry) string {
	length, ok := e.Lasted()
	if !ok {
		return ""
	}
	return lasted(length)
}
