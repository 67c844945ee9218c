package forgerun_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/testkit"
)

// watcher is a log that knows which states each job has entered, so that tests wait for what
// happens and not for time.
type watcher struct {
	slog.Handler
	mu      sync.Mutex
	changed *sync.Cond
	states  map[string]bool // "ID STATE"
	finals  int             // entries into a final state
	lines   int             // other lines
}

func newWatcher(h slog.Handler) *watcher {
	w := &watcher{Handler: h, states: map[string]bool{}}
	w.changed = sync.NewCond(&w.mu)
	return w
}

func (w *watcher) Enabled(context.Context, slog.Level) bool { return true }

func (w *watcher) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "job" {
		var id, next string
		r.Attrs(func(a slog.Attr) bool {
			switch a.Key {
			case "job_id":
				id = a.Value.String()
			case "next_state":
				next = a.Value.String()
			}
			return true
		})
		w.mu.Lock()
		w.states[id+" "+next] = true
		if next == "SUCCEEDED" || next == "FAILED" || next == "CANCELED" {
			w.finals++
		}
		w.mu.Unlock()
	}
	var err error
	if w.Handler != nil {
		err = w.Handler.Handle(ctx, r)
	}
	w.mu.Lock()
	w.lines++
	w.mu.Unlock()
	w.changed.Broadcast()
	return err
}

// waitFor waits for something that a line of the log reports.
func (w *watcher) waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	timedOut := false
	limit := time.AfterFunc(2*testkit.WaitTimeout, func() { // crowds take their time
		w.mu.Lock()
		timedOut = true
		w.mu.Unlock()
		w.changed.Broadcast()
	})
	defer limit.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !condition() {
		if timedOut {
			t.Fatalf("%s did not happen", what)
		}
		w.changed.Wait()
	}
}

// await waits until a job has entered a state.
func (w *world) await(t testing.TB, id, state string) {
	t.Helper()
	w.watcher.waitFor(t, "job "+id+" "+state, func() bool { return w.watcher.states[id+" "+state] })
}

// awaitFinals waits for n entries into final states.
func (w *world) awaitFinals(t testing.TB, n int) {
	t.Helper()
	w.watcher.waitFor(t, "the end of all jobs", func() bool { return w.watcher.finals >= n })
}

// runServer runs workers, deliveries and maintenance until the test ends, or stop is called.
func (w *world) runServer(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	runner := maintenance.Runner{Engine: w.engine,
		Publishers: []maintenance.Publisher{{Deliver: w.forge.Deliver}}}
	all.Go(func() { w.forge.Run(ctx) })
	all.Go(func() { runner.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}
