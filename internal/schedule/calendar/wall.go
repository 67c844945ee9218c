package calendar

import "time"

// A time on the wall is a time.Time in UTC that has the date and the clock of another zone. What it
// is in the zone depends on the clock changes there:
//
//	put ahead   01:59:59 | 03:00:00       02:30 is not there  ─▶ the moment of the change
//	put back    02:59:59 | 02:00:00       02:30 is there twice ─▶ the first of them
//
// So a wall never brings a later time before an earlier one, and several times that are not there
// are one moment.

// wallOf returns what the wall of a zone shows at a moment, in whole seconds.
func wallOf(at time.Time, zone *time.Location) time.Time {
	_, offset := at.In(zone).Zone()
	return at.UTC().Truncate(time.Second).Add(time.Duration(offset) * time.Second)
}

// atWall returns the moment at which the wall of a zone first shows a time, or the first moment
// after the change of the clock that left it out.
func atWall(wall time.Time, zone *time.Location) time.Time {
	near := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(),
		wall.Second(), 0, zone)
	start, end := near.ZoneBounds()
	offsetsAt := []time.Time{near}
	if !start.IsZero() {
		offsetsAt = append(offsetsAt, start.Add(-time.Second))
	}
	if !end.IsZero() {
		offsetsAt = append(offsetsAt, end)
	}
	first := time.Time{}
	for _, in := range offsetsAt {
		_, offset := in.In(zone).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if wallOf(at, zone).Equal(wall) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	switch {
	case !first.IsZero():
		return first.UTC()
	case wallOf(near, zone).After(wall):
		return start.UTC()
	}
	return end.UTC()
}
