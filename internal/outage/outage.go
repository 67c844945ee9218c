// Package outage keeps the log short while something is away. What the node depends on
// is a Part: it says once that it is degraded and once that it works again, whatever the
// number of requests, workers and loops that meet it. What the node does again and again
// is a Loop: it says once that it fails, and stays silent about parts, which tell of
// themselves.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Is reports whether an error is that of a part which is away or refuses its work.
func Is(err error) bool {
	return job.IsKind(err, job.Unavailable) || job.IsKind(err, job.ReadOnly)
}

// Level is the level of a line about one thing that failed: Debug where a part caused it,
// which is told by the part.
func Level(level slog.Level, err error) slog.Level {
	if Is(err) {
		return slog.LevelDebug
	}
	return level
}

// quietPeriod is how long no call may have failed before a part counts as working again: one
// that answers now and then is degraded all the time.
const quietPeriod = time.Second

// Endpoint says what a part is, and where.
type Endpoint struct {
	Name    string // such as store
	Setting string // that says where it is, such as stream.url
	Address string // host and port, or a directory; no secrets
}

// Part is something the node depends on. As nil it tells nobody.
type Part struct {
	endpoint Endpoint
	log      *slog.Logger
	now      func() time.Duration // monotonic

	mu          sync.Mutex
	degraded    bool
	since       time.Duration // when the outage began
	failed      time.Duration // when a call failed last
	healthy     bool          // a call that began after that went well
	recovering  bool          // the end of the quiet time is waited for
	recoveredAt time.Duration // when it began to work again
}

// NewPart makes a part that works as far as is known.
func NewPart(log *slog.Logger, now func() time.Duration, place Endpoint) *Part {
	return &Part{endpoint: place, log: log, now: now, recoveredAt: -1}
}

// Do makes a call of the part and notes how it ended.
func (p *Part) Do(call func() error) error {
	ended := p.Begin()
	err := call()
	ended(err)
	return err
}

// Begin notes that a call of the part begins, and returns what is told how it ended.
func (p *Part) Begin() (ended func(error)) {
	if p == nil {
		return func(error) {}
	}
	began := p.now()
	return func(err error) {
		switch {
		case Is(err):
			p.fail(began, err)
		case err == nil:
			p.succeed(began)
		}
	}
}

// fail notes a call that failed. One that began before the part worked again is of the
// outage that is over.
func (p *Part) fail(began time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if began < p.recoveredAt {
		return
	}
	p.failed, p.healthy = p.now(), false
	if p.degraded {
		return
	}
	p.degraded, p.since = true, p.failed
	p.log.Warn("a part is degraded; what needs it waits or is refused",
		p.attrs("error_message", err.Error())...)
}

// succeed notes a call that went well. One that began before the last failure says nothing.
func (p *Part) succeed(began time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.degraded || began < p.failed {
		return
	}
	p.healthy = true
	p.recover()
}

// recover ends the outage when the part has been sound for the quiet time.
func (p *Part) recover() {
	now := p.now()
	switch left := p.failed + quietPeriod - now; {
	case left <= 0:
		p.degraded, p.recoveredAt = false, now
		p.log.Info("a part works again", p.attrs("duration", p.recoveredAt-p.since)...)
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

func (p *Part) attrs(more ...any) []any {
	return append([]any{"part", p.endpoint.Name, "setting", p.endpoint.Setting,
		"address", p.endpoint.Address}, more...)
}

// Loop is something that the node does again and again. Its methods may be called at the
// same time.
type Loop struct {
	Log  *slog.Logger // nil tells nobody
	Name string       // such as promotion

	mu      sync.Mutex
	failing bool
}

// Report notes how a round ended, unless the end of ctx ended it.
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
