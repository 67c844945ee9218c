package job

import "time"

// QueueSettings are the settings of one queue. MaxRunning and Rate come from the configuration; an
// operator may set others in their place.
type QueueSettings struct {
	JobType    string
	Queue      string
	Paused     bool // no job is claimed
	MaxRunning int  // jobs leased at a time, over all nodes; 0 means no limit
	Rate       Rate
	Live       LiveLimits
}

// LiveLimits are the limits of a queue that an operator has set; nil is what was not set.
type LiveLimits struct {
	MaxRunning *int
	Rate       *Rate
}

// QueueLimits are the limits of a queue.
type QueueLimits struct {
	MaxRunning int
	Rate       Rate
}

// Limits returns the limits that are in force.
func (q *QueueSettings) Limits() QueueLimits {
	l := QueueLimits{q.MaxRunning, q.Rate}
	if q.Live.MaxRunning != nil {
		l.MaxRunning = *q.Live.MaxRunning
	}
	if q.Live.Rate != nil {
		l.Rate = *q.Live.Rate
	}
	return l
}

// IsDefault reports whether the queue has no settings: it is like a queue without them.
func (q *QueueSettings) IsDefault() bool {
	return !q.Paused && q.MaxRunning == 0 && q.Rate.IsZero() && q.Live == LiveLimits{}
}

// Rate bounds the starts of the jobs of a queue, over all nodes: there are at most Starts in
// every Period, wherever it begins. The zero Rate is no bound.
type Rate struct {
	Starts int
	Period time.Duration
}

// IsZero reports whether the rate is no bound.
func (r Rate) IsZero() bool { return r == Rate{} }

// The ranges of a Rate that is not zero. A Period has whole milliseconds.
const (
	MaxRateStarts = 1_000_000
	MinRatePeriod = 100 * time.Millisecond
	MaxRatePeriod = 31 * 24 * time.Hour
)

// IsValid reports whether the rate is zero or within its ranges.
func (r Rate) IsValid() bool {
	return r.IsZero() || (r.Starts > 0 && r.Starts <= MaxRateStarts &&
		r.Period >= MinRatePeriod && r.Period <= MaxRatePeriod && r.Period%time.Millisecond == 0)
}
