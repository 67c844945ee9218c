// Package calendar says at which times a schedule runs. It is arithmetic alone: it reads no clock
// and keeps nothing.
//
//	Rule ──Parse──▶ Calendar ──Next, Last──▶ times
//
// A cron expression is about the clock on the wall of a time zone. Its times are found on a wall
// that never changes, that of UTC, and each is then brought to the zone (wall.go), so that what
// happens where clocks change is defined in one place.
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
	Until  time.Time     // the first moment after From that may be none; zero: no bound
}

// Calendar is a rule that was read.
type Calendar struct {
	rule Rule
	zone *time.Location
	cron cron.Schedule // nil for Every
}

// parser reads cron expressions. Where both fields of days are restricted a day needs to match one.
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom |
	cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

// Parse reads a rule. Its error begins with the name of the wrong member: cron, every, time_zone or
// ends_at.
func Parse(r Rule) (*Calendar, error) {
	switch {
	case (r.Cron == "") == (r.Every == 0):
		return nil, errors.New("cron or every is needed, and only one of them")
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

// firstWall is from when on a cron expression must have a time.
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
	for since == math.MaxInt64 { // Sub has ended at the longest duration, of some 290 years
		anchor = anchor.Add(since / every * every)
		since = after.Sub(anchor)
	}
	if since < 0 {
		return anchor
	}
	return anchor.Add(since / every * every).Add(every)
}

// nextCron returns the first time of Cron after a moment, zero if there is none. Where the clock
// was put back, times on the wall come that have been before: they are passed over.
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

// The bounds of the times of a cron expression that Shortest compares: those of years have a leap
// day, and those of days show how hours and minutes repeat.
const (
	comparedTimes = 1000
	comparedYears = 5
)

// Shortest returns the shortest time from one time to the next one; 0 if there is one time only.
// That of Cron is of as many of its times as show how they repeat.
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

// Last returns the last n times after a moment and not after another one, the earliest first. Its
// cost grows with n, and not with how long it is between the two.
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
