package calendar

import "time"

// A time of the wall clock of a zone is stored as a time.Time in UTC with the same date and clock.
// Which moment it is depends on how the clocks of the zone change:
//
//	put ahead   01:59:59 | 03:00:00       02:30 does not exist  ─▶ the moment of the change
//	put back    02:59:59 | 02:00:00       02:30 exists twice    ─▶ the first of the two moments
//
// So the order of wall clock times is also the order of their moments, and several times that do
// not exist have one moment in common.

// wallOf returns the time that the wall clock of a zone shows at a moment, in whole seconds.
func wallOf(at time.Time, zone *time.Location) time.Time {
	_, offset := at.In(zone).Zone()
	return at.UTC().Truncate(time.Second).Add(time.Duration(offset) * time.Second)
}

// atWall returns the moment at which the wall clock of a zone first shows a time. If a change of
// the clock left the time out, it is the moment of the change.
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
