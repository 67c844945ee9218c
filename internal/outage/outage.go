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

// quiet is how long no call may have failed before a part counts as working again: one
// that answers now and then is degraded all the time.
const quiet = time.Second

// Place says what a part is, and where.
type Place struct {
	Name    string // such as store
	Setting string // that says where it is, such as stream.url
	Address string // host and port, or a directory; no secrets
}

// Part is something the node depends on. As nil it tells nobody.
type Part struct {
	place Place
	log   *slog.Logger
	now   func() time.Duration // monotonic

	mu       sync.Mutex
	degraded bool
	since    time.Duration // when the outage began
	failed   time.Duration // when a call failed last
	sound    bool          // a call that began after that went well
	waits    bool          // the end of the quiet time is waited for
	back     time.Duration // when it began to work again
}

// NewPart makes a part that works as far as is known.
func NewPart(log *slog.Logger, now func() time.Duration, place Place) *Part {
	return &Part{place: place, log: log, now: now, back: -1}
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
			p.work(began)
		}
	}
}

// fail notes a call that failed. One that began before the part worked again is of the
// outage that is over.
func (p *Part) fail(began time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if began < p.back {
		return
	}
	p.failed, p.sound = p.now(), false
	if p.degraded {
		return
	}
	p.degraded, p.since = true, p.failed
	p.log.Warn("a part is degraded; what needs it waits or is refused",
		p.about("error_message", err.Error())...)
}

// work notes a call that went well. One that began before the last failure says nothing.
func (p *Part) work(began time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.degraded || began < p.failed {
		return
	}
	p.sound = true
	p.recover()
}

// recover ends the outage when the part has been sound for the quiet time.
func (p *Part) recover() {
	now := p.now()
	switch left := p.failed + quiet - now; {
	case left <= 0:
		p.degraded, p.back = false, now
		p.log.Info("a part works again", p.about("duration", p.back-p.since)...)
	case !p.waits:
		p.waits = true
		time.AfterFunc(left, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.waits = false
			if p.degraded && p.sound {
				p.recover()
			}
		})
	}
}

func (p *Part) about(more ...any) []any {
	return append([]any{"part", p.place.Name, "setting", p.place.Setting,
		"address", p.place.Address}, more...)
}

// Loop is something that the node does again and again. Its methods may be called at the
// same time.
type Loop struct {
	Log  *slog.Logger // nil tells nobody
	What string       // such as promotion

	mu      sync.Mutex
	failing bool
}

// Did notes how a round ended, unless the end of ctx ended it.
func (l *Loop) Did(ctx context.Context, err error) {
	if l.Log == nil || ctx.Err() != nil {
		return
	}
	if Is(err) {
		l.Log.Debug("a loop waits for a part", "loop", l.What, "error_message", err.Error())
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.failing
	l.failing = err != nil
	switch {
	case l.failing && !was:
		l.Log.Warn("a loop fails and is tried again until it works", "loop", l.What,
			"error_message", err.Error())
	case was && !l.failing:
		l.Log.Info("a loop works again", "loop", l.What)
	}
}
