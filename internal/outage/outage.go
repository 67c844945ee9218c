// Package outage keeps the log short while something does not answer.
//
// A Monitor is something the node depends on, such as the store or the streams. It logs one line
// when it becomes degraded and one line when it works again, whatever the number of requests,
// workers and loops whose calls fail meanwhile. A Loop is something the node does again and again.
// It logs one line when it begins to fail and one when it works again, but nothing about errors of
// a part, which logs its own outage.
//
//	calls of a part  ok ok FAIL FAIL ok FAIL ok ok ok ok
//	                       │                          │ no failure for quietPeriod
//	log                    WARN degraded              INFO works again
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
)

// Is reports whether an error says that a part does not answer or refuses to write.
func Is(err error) bool {
	return job.IsKind(err, job.Unavailable) || job.IsKind(err, job.ReadOnly)
}

// Level returns the level for logging one failure: Debug where a part caused it, since the part
// logs its outage itself, and the given level otherwise.
func Level(level slog.Level, err error) slog.Level {
	if Is(err) {
		return slog.LevelDebug
	}
	return level
}

// quietPeriod is how long no call may fail before a part counts as working again. A part that
// answers now and then stays degraded.
const quietPeriod = time.Second

// Endpoint describes a part for the log.
type Endpoint struct {
	Name    string // such as store
	Setting string // the setting of its address, such as stream.url
	Address string // host and port, or a directory; never with secrets

	// Quiet takes the place of quietPeriod if it is longer. It is for a part of which some calls
	// succeed while others fail, such as reads of a database whose disk is full.
	Quiet time.Duration
	// RefusalQuiet takes the place of quietPeriod after a refusal (job.ReadOnly), if it is
	// longer. It is for a part of which one piece may refuse, such as a folder, while calls of
	// the others succeed: an outage of it would end with each of those calls and begin again.
	RefusalQuiet time.Duration
}

// Monitor is something the node depends on. A nil Monitor records nothing.
type Monitor struct {
	endpoint Endpoint
	log      *slog.Logger
	now      func() time.Duration // monotonic

	mu          sync.Mutex
	degraded    bool
	since       time.Duration // when the outage began
	failed      time.Duration // when a call failed last
	quietUntil  time.Duration // until when no call may fail for the outage to end
	healthy     bool          // a call that began after failed has succeeded
	healthyAt   time.Duration // when the first such call had succeeded
	recovering  bool          // a timer waits for the end of the quiet period
	recoveredAt time.Duration // when the last outage ended
	lastErr     error         // of the call that failed last
	latency     time.Duration // of the call that ended last
}

// NewMonitor makes a part that is assumed to work.
func NewMonitor(log *slog.Logger, now func() time.Duration, endpoint Endpoint) *Monitor {
	return &Monitor{endpoint: endpoint, log: log, now: now, recoveredAt: -1}
}

// Do makes a call of the part and records its result.
func (p *Monitor) Do(call func() error) error {
	report := p.Begin()
	err := call()
	report(err)
	return err
}

// Begin records that a call of the part begins, and returns the function that records its result.
func (p *Monitor) Begin() (report func(error)) {
	if p == nil {
		return func(error) {}
	}
	start := p.now()
	return func(err error) {
		switch {
		case Is(err):
			p.fail(start, err)
		case err == nil:
			p.succeed(start)
		}
	}
}

// fail records a failed call. A call that began before the last outage ended belongs to that
// outage.
func (p *Monitor) fail(start time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if start < p.recoveredAt {
		return
	}
	p.failed, p.healthy = p.now(), false
	p.lastErr, p.latency = err, p.failed-start
	quiet := max(quietPeriod, p.endpoint.Quiet)
	if job.IsKind(err, job.ReadOnly) {
		quiet = max(quiet, p.endpoint.RefusalQuiet)
	}
	p.quietUntil = max(p.quietUntil, p.failed+quiet)
	if p.degraded {
		return
	}
	p.degraded, p.since = true, p.failed
	p.log.Warn("a part is degraded; calls that need it wait or are refused",
		p.attrs("error_message", err.Error())...)
}

// succeed records a successful call. A call that began before the last failure proves nothing.
func (p *Monitor) succeed(start time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = p.now() - start
	if !p.degraded || start < p.failed {
		return
	}
	if !p.healthy {
		p.healthy, p.healthyAt = true, p.now()
	}
	p.recover()
}

// recover ends the outage when no call has failed for the quiet period, now or by a timer.
func (p *Monitor) recover() {
	now := p.now()
	switch left := p.quietUntil - now; {
	case left <= 0:
		p.degraded, p.recoveredAt = false, now
		p.log.Info("a part works again", p.attrs("duration", p.healthyAt-p.since)...)
	case !p.recovering:
		p.recovering = true
		time.AfterFunc(left, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.recovering = false
			if p.degraded && p.healthy {
				p.recover()
			}
		})
	}
}

// Status is how a part is. Its times are read from the clock that the part was made with.
type Status struct {
	Endpoint Endpoint
	Degraded bool
	Since    time.Duration // when the outage began, or the last one ended; 0: it never failed
	Latency  time.Duration // of the call that ended last; 0: there was none
	LastErr  error         // of the call that failed last; nil: none has
	FailedAt time.Duration // when that was
}

// Status returns how the part is.
func (p *Monitor) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Endpoint: p.endpoint, Degraded: p.degraded, Since: max(0, p.recoveredAt),
		Latency: p.latency, LastErr: p.lastErr, FailedAt: p.failed}
	if p.degraded {
		s.Since = p.since
	}
	return s
}

func (p *Monitor) attrs(more ...any) []any {
	return append([]any{"part", p.endpoint.Name, "setting", p.endpoint.Setting,
		"address", p.endpoint.Address}, more...)
}

// Loop is something that the node does again and again. Its methods may be called concurrently.
type Loop struct {
	Log  *slog.Logger // nil logs nothing
	Name string       // such as promotion

	mu      sync.Mutex
	failing bool
}

// Until does something until it succeeds, with a pause between two tries, and reports whether it
// has succeeded before ctx ended.
func (l *Loop) Until(ctx context.Context, pause time.Duration,
	do func(context.Context) error) bool {
	for {
		err := do(ctx)
		l.Report(ctx, err)
		if err != nil && clock.Sleep(ctx, pause) {
			continue
		}
		return err == nil
	}
}

// Report records the result of one round. An ended ctx counts as the reason of any failure, so the
// round is not recorded.
func (l *Loop) Report(ctx context.Context, err error) {
	if l.Log == nil || ctx.Err() != nil {
		return
	}
	if Is(err) {
		l.Log.Debug("a loop waits for a part", "loop", l.Name, "error_message", err.Error())
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.failing
	l.failing = err != nil
	switch {
	case l.failing && !was:
		l.Log.Warn("a loop fails and is tried again until it works", "loop", l.Name,
			"error_message", err.Error())
	case was && !l.failing:
		l.Log.Info("a loop works again", "loop", l.Name)
	}
}
