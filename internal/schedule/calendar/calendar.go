// Package calendar says at which times a schedule runs. It is arithmetic alone: it reads no clock
// and keeps nothing.
//
//	Rule ──Parse──▶ Calendar ──Next, Last──▶ times
//
// A cron expression names times of the wall clock of a time zone. They are computed for a wall
// clock in UTC, which is never put ahead or back, and each is then converted to the zone (wall.go).
// So one place defines what happens where clocks change.
package calendar

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	_ "time/tzdata" // the time zones of a machine may be missing or old

	"github.com/netresearch/go-cron"
)

// The bounds of Rule.Every.
const (
	MinEvery = time.Second
	MaxEvery = 87600 * time.Hour
)

// maxCron bounds the length of a cron expression, in bytes.
const maxCron = 500

// Rule is how the times of a schedule are written. It has Cron or Every.
type Rule struct {
	Cron   string        // five fields, or six with seconds first, or @hourly and the like
	Every  time.Duration // from each time to the next one
	Anchor time.Time     // a time of Every, from which all others are counted
	Zone   string        // an IANA time zone, that of Cron; empty is UTC
	From   time.Time     // the first moment that may be a time; zero: no bound
	Until  time.Time     // the end of the schedule: all times are before it; zero: no bound
}

// Calendar computes the times of a rule.
type Calendar struct {
	rule Rule
	zone *time.Location
	cron cron.Schedule // nil for Every
}

// parser reads cron expressions. If both fields of days are restricted, a day needs to match one.
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom |
	cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

// Parse reads a rule. Its error begins with the name of the wrong member: cron, every, time_zone or
// ends_at.
func Parse(r Rule) (*Calendar, error) {
	switch {
	case (r.Cron == "") == (r.Every == 0):
		return nil, errors.New("cron or every is required, and only one of them")
	case r.Cron == "" && (r.Every < MinEvery || r.Every > MaxEvery):
		return nil, errors.New("every must be a duration from 1s to 87600h")
	case !r.Until.IsZero() && !r.Until.After(r.From):
		return nil, errors.New("ends_at must be after starts_at")
	}
	zone, err := ParseZone(r.Zone)
	if err != nil {
		return nil, fmt.Errorf("time_zone %w", err)
	}
	c := &Calendar{rule: r, zone: zone}
	if r.Cron == "" {
		return c, nil
	}
	if c.cron, err = parseCron(r.Cron); err != nil {
		return nil, fmt.Errorf("cron %w", err)
	}
	return c, nil
}

// ParseZone reads the name of an IANA time zone. The empty text is UTC; the zone of the machine has
// no name, as nodes may differ in it.
func ParseZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, errors.New("must be a time zone such as Europe/Berlin")
	}
	return zone, nil
}

// firstWall is the moment after which a cron expression must have a time.
var firstWall = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// parseCron reads a cron expression and refuses one that has no times.
func parseCron(text string) (cron.Schedule, error) {
	lower := strings.ToLower(strings.TrimSpace(text))
	switch {
	case len(text) > maxCron:
		return nil, fmt.Errorf("must have at most %d bytes", maxCron)
	case strings.HasPrefix(lower, "@every"):
		return nil, errors.New("has @every; the member every takes a duration")
	case strings.Contains(lower, "tz="):
		return nil, errors.New("has a time zone; the member time_zone takes one")
	}
	s, err := parser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is not valid: %w", err)
	}
	if s.Next(firstWall).IsZero() {
		return nil, errors.New("names a time that never comes")
	}
	return s, nil
}

// Next returns the first time after a moment, false if there is none.
func (c *Calendar) Next(after time.Time) (time.Time, bool) {
	if before := c.rule.From.Add(-time.Nanosecond); !c.rule.From.IsZero() && after.Before(before) {
		after = before
	}
	var next time.Time
	if c.cron == nil {
		next = c.nextEvery(after)
	} else {
		next = c.nextCron(after)
	}
	if next.IsZero() || (!c.rule.Until.IsZero() && !next.Before(c.rule.Until)) {
		return time.Time{}, false
	}
	return next, true
}

// nextEvery returns the first time of Every after a moment.
func (c *Calendar) nextEvery(after time.Time) time.Time {
	anchor, every := c.rule.Anchor, c.rule.Every
	since := after.Sub(anchor)
	for since == math.MaxInt64 { // it is longer than the longest duration, which has 292 years
		anchor = anchor.Add(since / every * every)
		since = after.Sub(anchor)
	}
	if since < 0 {
		return anchor
	}
	return anchor.Add(since / every * every).Add(every)
}

// nextCron returns the first time of Cron after a moment, or the zero time if there is none. When
// the wall clock was put back, it shows times for a second time. nextCron passes over these.
func (c *Calendar) nextCron(after time.Time) time.Time {
	for wall := wallOf(after, c.zone); ; {
		if wall = c.cron.Next(wall); wall.IsZero() {
			return wall
		}
		if at := atWall(wall, c.zone); at.After(after) {
			return at
		}
	}
}

// The bounds of the times of a cron expression that Shortest compares. Five years have a leap day,
// and a thousand times show how hours and minutes repeat within days.
const (
	comparedTimes = 1000
	comparedYears = 5
)

// Shortest returns the shortest duration between two times that follow each other, or 0 if there is
// only one time. For Cron it compares the first comparedTimes times, within comparedYears years.
func (c *Calendar) Shortest() (shortest time.Duration) {
	if c.cron == nil {
		return c.rule.Every
	}
	from := firstWall
	if !c.rule.From.IsZero() {
		from = c.rule.From.Add(-time.Nanosecond)
	}
	at, ok := c.Next(from)
	for end, n := at.AddDate(comparedYears, 0, 0), 0; ok && n < comparedTimes; n++ {
		before := at
		if at, ok = c.Next(at); !ok || at.After(end) {
			break
		}
		if d := at.Sub(before); shortest == 0 || d < shortest {
			shortest = d
		}
	}
	return shortest
}

// Last returns the last n times that are after one moment and not after another, the earliest
// first. Its cost grows with n, and not with the time between the two moments.
func (c *Calendar) Last(after, until time.Time, n int) []time.Time {
	for span := time.Minute; ; span *= 2 {
		from := until.Add(-span)
		all := !from.After(after)
		if all {
			from = after
		}
		var times []time.Time
		for at, ok := c.Next(from); ok && !at.After(until); at, ok = c.Next(at) {
			times = append(times, at)
		}
		if all || len(times) >= n {
			return times[max(0, len(times)-n):]
		}
	}
}
