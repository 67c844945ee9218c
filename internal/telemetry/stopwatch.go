package telemetry

import "time"

// Stopwatch measures how long something takes and bounds how long a connection
// may. It never decides what a job is: that is the store's clock.
type Stopwatch struct{ start time.Time }

// StartStopwatch starts a watch.
func StartStopwatch() Stopwatch { return Stopwatch{time.Now()} }

// Elapsed is the time since the start.
func (s Stopwatch) Elapsed() time.Duration { return time.Since(s.start) }

// Deadline is the instant d from now, for the deadlines of connections.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }
