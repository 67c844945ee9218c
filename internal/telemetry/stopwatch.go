package telemetry

import "time"

// Stopwatch measures elapsed time. Decisions about jobs never use it, only the time of the engine.
type Stopwatch struct{ start time.Time }

// StartStopwatch starts a Stopwatch.
func StartStopwatch() Stopwatch { return Stopwatch{time.Now()} }

// Elapsed returns the time since the start.
func (s Stopwatch) Elapsed() time.Duration { return time.Since(s.start) }

// Deadline returns the time d from now, for the deadlines of connections.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }
