package outage_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/testkit"
)

// part is one under test, in a bubble of its own time.
type part struct {
	*outage.Monitor
	log testkit.LogBuffer
}

// inBubble runs a test with a part; time passes when the test sleeps, and at once.
func inBubble(t *testing.T, test func(t *testing.T, p *part)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, p := time.Now(), &part{}
		clock := func() time.Duration { return time.Since(began) }
		place := outage.Endpoint{Name: "store", Setting: "store", Address: "db.example:5432",
			RefusalQuiet: time.Minute}
		p.Monitor = outage.NewMonitor(slog.New(slog.NewTextHandler(&p.log, nil)), clock, place)
		test(t, p)
	})
}

// pass lets time pass, and what is to happen then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// lines counts what the log has of an outage and of its end.
func (p *part) lines() [2]int {
	return [2]int{strings.Count(p.log.String(), "is degraded"),
		strings.Count(p.log.String(), "a part works again")}
}

var unavailable = error(&job.Error{Kind: job.Unavailable, Op: "store.begin",
	Msg: "the store is unavailable"})

func (p *part) call(err error) { _ = p.Do(func() error { return err }) }

func TestOneLineForAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, p *part) {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 20 {
					p.call(unavailable)
				}
			})
		}
		all.Wait()
		if p.lines() != [2]int{1, 0} {
			t.Fatalf("the log is %s", p.log.String())
		}
		pass(2 * time.Second)
		for range 3 {
			p.call(nil)
		}
		if p.lines() != [2]int{1, 1} {
			t.Fatalf("the log is %s", p.log.String())
		}
		for _, has := range []string{"level=WARN",
			"part=store setting=store address=db.example:5432", "the store is unavailable",
			"level=INFO",
			"duration=2s"} {
			if !strings.Contains(p.log.String(), has) {
				t.Errorf("the log lacks %s: %s", has, p.log.String())
			}
		}
	})
}

// Calls that overlap the edges of an outage say nothing new.
func TestEdgesOfAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, p *part) {
		late := p.Begin()
		p.call(unavailable)
		slow := p.Begin() // before the failure that comes last
		pass(time.Millisecond)
		p.call(unavailable)
		pass(10 * time.Second)
		slow(nil)
		if p.lines() != [2]int{1, 0} {
			t.Errorf("a call that began in the outage ends it: %s", p.log.String())
		}
		pass(10 * time.Millisecond)
		p.call(nil)
		pass(10 * time.Second)
		late(unavailable)
		if p.lines() != [2]int{1, 1} {
			t.Errorf("a call of the outage that is over begins another: %s", p.log.String())
		}
		p.call(unavailable)
		if p.lines() != [2]int{2, 1} {
			t.Errorf("the next outage is not logged: %s", p.log.String())
		}
	})
}

// One call that succeeds is enough where no other follows.
func TestTheEndIsLoggedByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, p *part) {
		p.call(unavailable)
		pass(10 * time.Millisecond)
		p.call(nil)
		if p.lines() != [2]int{1, 0} {
			t.Errorf("it is logged at once: %s", p.log.String())
		}
		pass(2 * time.Second)
		if p.lines() != [2]int{1, 1} {
			t.Errorf("it is not logged: %s", p.log.String())
		}
	})
}

// A part that answers every other call is degraded all the time.
func TestFlapping(t *testing.T) {
	inBubble(t, func(t *testing.T, p *part) {
		for range 100 {
			p.call(unavailable)
			pass(500 * time.Millisecond)
			p.call(nil)
		}
		if p.lines() != [2]int{1, 0} {
			t.Errorf("the log is %s", p.log.String())
		}
	})
}

// A piece of the part refuses every time that it is asked, such as by the readiness checks, while
// calls of its other pieces succeed: that is one outage. It ends when nothing was refused for long.
func TestRefusalsOfAPiece(t *testing.T) {
	inBubble(t, func(t *testing.T, p *part) {
		for range 20 {
			p.call(&job.Error{Kind: job.ReadOnly, Msg: "the folder cannot be written"})
			for range 15 {
				pass(2 * time.Second)
				p.call(nil)
			}
		}
		if p.lines() != [2]int{1, 0} {
			t.Errorf("the log is %s", p.log.String())
		}
		pass(time.Minute)
		// the last refusal came after 19 × 30 s, and the first success 2 s later
		if p.lines() != [2]int{1, 1} || !strings.Contains(p.log.String(), "duration=9m32s") {
			t.Errorf("the end is not logged: %s", p.log.String())
		}
	})
}

// Writes to a full disk fail every few seconds while reads succeed: that is one outage.
func TestReadsBetweenFailedWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, p := time.Now(), &part{}
		p.Monitor = outage.NewMonitor(slog.New(slog.NewTextHandler(&p.log, nil)),
			func() time.Duration { return time.Since(began) },
			outage.Endpoint{Name: "store", Quiet: 5 * time.Second})
		for range 10 {
			p.call(unavailable)
			for range 4 {
				pass(time.Second)
				p.call(nil)
			}
		}
		if p.lines() != [2]int{1, 0} {
			t.Errorf("the log is %s", p.log.String())
		}
		pass(2 * time.Second)
		if p.lines() != [2]int{1, 1} || !strings.Contains(p.log.String(), "duration=37s") {
			t.Errorf("the end is not logged: %s", p.log.String())
		}
	})
}

// Errors of the request, of its caller or of ours are none of the part's.
func TestOtherErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, p *part) {
		for _, k := range job.Kinds() {
			if k != job.Unavailable && k != job.ReadOnly {
				p.call(&job.Error{Kind: k})
			}
		}
		p.call(errors.New("unknown"))
		if p.log.String() != "" {
			t.Errorf("the log is %s", p.log.String())
		}
		var none *outage.Monitor
		if err := none.Do(func() error { return unavailable }); err != unavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestLoop(t *testing.T) {
	t.Parallel()
	var log testkit.LogBuffer
	l := &outage.Loop{Log: slog.New(slog.NewTextHandler(&log, nil)), Name: "promotion"}
	ctx, cancel := context.WithCancel(context.Background())
	for _, err := range []error{nil, unavailable, unavailable, nil} {
		l.Report(ctx, err)
	}
	if log.String() != "" {
		t.Errorf("the loop logs the outage of a part: %s", log.String())
	}
	broken := errors.New("broken")
	for _, err := range []error{broken, broken, nil, nil} {
		l.Report(ctx, err)
	}
	cancel()
	l.Report(ctx, broken)
	if text := log.String(); strings.Count(text, "\n") != 2 ||
		!strings.Contains(text,
			"level=WARN msg=\"a loop fails and is tried again until it works\" loop=promotion error_message=broken") ||
		!strings.Contains(text, "level=INFO msg=\"a loop works again\" loop=promotion") {
		t.Errorf("the log is %s", text)
	}
	new(outage.Loop).Report(context.Background(), broken)
}

// TestUntil checks that a loop pauses between tries, ends with the first success, and ends with
// its context.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log testkit.LogBuffer
		l := &outage.Loop{Log: slog.New(slog.NewTextHandler(&log, nil)), Name: "limits"}
		began, tries := time.Now(), 0
		ok := l.Until(t.Context(), time.Second, func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("broken")
			}
			return nil
		})
		if took := time.Since(began); !ok || tries != 3 || took != 2*time.Second {
			t.Errorf("ended %v after %d tries in %s, want true after 3 in 2s", ok, tries, took)
		}
		if text := log.String(); !strings.Contains(text, "a loop fails") ||
			!strings.Contains(text, "works again") {
			t.Errorf("logged %q", text)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second/2)
		defer cancel()
		if l.Until(ctx, time.Second, func(context.Context) error { return errors.New("x") }) {
			t.Error("a loop that never succeeds reports success")
		}
	})
}
