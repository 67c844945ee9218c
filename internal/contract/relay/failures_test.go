package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/job"
	settings "github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// TestErrorTable: every kind of error has its status.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	for _, retryable := range []int{429, 503} {
		testkit.CheckErrorTable(t, relay.ErrorTable(retryable))
	}
}

// faultyStore is a store that fails when it is set to, before or after the work.
type faultyStore struct {
	store.Store
	fail atomic.Pointer[error]
}

func (f *faultyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if err := f.fail.Load(); err != nil {
		return *err
	}
	return f.Store.Update(ctx, fn)
}

func (f *faultyStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if err := f.fail.Load(); err != nil {
		return *err
	}
	return f.Store.View(ctx, fn)
}

// faultyWorld is a world on such a store.
func faultyWorld(t *testing.T, c relay.Config) (*world, *faultyStore) {
	clock := testkit.NewClock()
	f := &faultyStore{Store: testkit.MemoryStore(t, clock.Now)}
	return newWorld(t, clock, f, c), f
}

// TestStorageFailures lets the store fail under every route.
func TestStorageFailures(t *testing.T) {
	t.Parallel()
	run := jobPath("q", "1") + "/run-id/12345678-1234-8123-8123-123456789abc"
	runs := `[{"queue":"q","id":"1","run_id":"12345678-1234-8123-8123-123456789abc"}]`
	routes := []struct{ ids, method, path, body string }{
		{"RL-029 RL-030 enqueue", "POST", "/v2/queues/jobs", "[" + jobBody("q", "1") + "]"},
		{"RL-029 RL-030 enqueue_replace", "POST", "/v2/queues/jobs?mode=replace",
			"[" + jobBody("q", "1") + "]"},
		{"RL-048 next", "GET", "/v2/queues/q/jobs", ""},
		{"RL-056 heartbeat", "PATCH", run, "1"},
		{"RL-069 requeue", "PUT", run, "[" + jobBody("q", "1") + "]"},
		{"RL-074 delete", "DELETE", jobPath("q", "1"), ""},
		{"RL-079 complete", "DELETE", run, ""},
		{"G-RL-32_completions", "POST", completions, runs},
		{"G-RL-32_heartbeats", "POST", heartbeats, runs},
		{"RL-081 exists", "HEAD", jobPath("q", "1"), ""},
		{"RL-084 get", "GET", jobPath("q", "1"), ""},
		{"G-RL-22_enqueue", "POST", "/v1/queues/jobs", "[" + jobBody("q", "1") + "]"},
		{"G-RL-22_reschedule", "PUT", "/v1/queues/jobs", jobBody("q", "1")},
		{"G-RL-22_heartbeat", "PATCH", "/v1/queues/q/jobs/1", ""},
	}
	failures := []struct {
		name   string
		err    error
		status int
	}{
		{"unavailable", &job.Error{Kind: job.Unavailable, Op: "store",
			Err: errors.New("dial 10.1.2.3:5432")}, 429},
		{"read_only", &job.Error{Kind: job.ReadOnly, Op: "store",
			Err: errors.New("disk /dev/sda1 is full")}, 429},
		{"timeout", &job.Error{Kind: job.Timeout, Op: "store"}, 429},
		{"aborted", &job.Error{Kind: job.Aborted, Op: "store"}, 429},
		{"invalid", &job.Error{Kind: job.Invalid, Op: "store",
			Msg: "the payload is more than the store can keep"}, 422},
		{"internal", &job.Error{Kind: job.Internal, Op: "store", Msg: "no such table: jobs",
			Err: errors.New("SELECT secret")}, 500},
		{"unclassified", errors.New("SELECT secret FROM nowhere"), 500},
	}
	for _, status := range []int{429, 503} {
		c := config()
		c.RetryableStatus = status
		w, f := faultyWorld(t, c)
		for _, r := range routes {
			for _, fail := range failures {
				if fail.status == 422 && strings.Contains(r.path, "/jobs") && r.method == "GET" &&
					!strings.Contains(r.path, "jobs/") {
					continue // next has no 422, and nothing that could be invalid
				}
				t.Run(fmt.Sprintf("%s_%s_%d", r.ids, fail.name, status), func(t *testing.T) {
					f.fail.Store(&fail.err)
					defer f.fail.Store(nil)
					want := fail.status
					if want == 429 {
						want = status // G-RL-09
					}
					got := w.Do(t, r.method, r.path, r.body).WantStatus(t, want)
					assertEqual(t, "retry-after", got.Header.Get("Retry-After"),
						map[bool]string{true: "1", false: ""}[want == status])
					if got.Header.Get("X-Request-Id") == "" {
						t.Error("the answer has no request id")
					}
					if r.method == "HEAD" {
						got.WantEmpty(t)
						return
					}
					got.WantErrorText(t)
					for _, inside := range []string{"SELECT", "secret", "10.1.2.3", "/dev", "table",
						"store:"} {
						if strings.Contains(got.Body, inside) {
							t.Errorf("the answer discloses %s: %s", inside, got.Body)
						}
					}
				})
			}
		}
		if log := w.log.String(); !strings.Contains(log, "SELECT secret") ||
			strings.Count(log, "level=ERROR") != 2*len(routes) {
			t.Errorf("each defect is logged once with its cause, got %d",
				strings.Count(log, "level=ERROR"))
		}
		w.put(t, jobBody("q", "after")) // and it works again
	}
}

// TestUnknownOutcome: a commit whose answer was lost is retryable, and a repeat returns what was
// stored.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	f := &lostAnswer{Store: testkit.MemoryStore(t, clock.Now)}
	w := newWorld(t, clock, f, config())
	f.next.Store(true)
	w.enqueue(t, "", jobBody("lost", "1")).WantStatus(t, 429)
	w.enqueue(t, "", jobBody("lost", "1")).WantStatus(t, 409)
	v := w.claim(t, "lost")
	f.next.Store(true)
	w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 429)
	w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
	w.wantGone(t, "lost", "1")
}

// lostAnswer writes and says it did not.
type lostAnswer struct {
	store.Store
	next atomic.Bool
}

func (l *lostAnswer) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := l.Store.Update(ctx, fn)
	if err == nil && l.next.CompareAndSwap(true, false) {
		return &job.Error{Kind: job.Unavailable, Op: "store.commit"}
	}
	return err
}

// TestToken is G-RL-24.
func TestToken(t *testing.T) {
	t.Parallel()
	c := config()
	c.Token = relayToken("correct horse")
	w := inMemory(t, c)
	for _, authorization := range []string{"", "Bearer", "Bearer wrong", "Basic correct horse",
		"correct horse", "Bearer correct horse battery"} {
		r := w.Do(t, "GET", "/v2/queues/q/jobs", "", "Authorization", authorization).WantStatus(t,
			401).WantErrorText(t, "token")
		assertEqual(t, "challenge", r.Header.Get("WWW-Authenticate"), `Bearer realm="millrace"`)
	}
	w.Do(t, "GET", "/v2/queues/nothing/here/at/all", "").WantStatus(t, 401)
	w.Do(t, "POST", completions, "[]").WantStatus(t, 401)
	w.Do(t, "POST", heartbeats, "[]").WantStatus(t, 401)
	w.Do(t, "GET", "/v2/queues/q/jobs", "", "Authorization", "Bearer correct horse").WantStatus(t,
		204)
	w.Do(t, "GET", "/v1/queues/q/jobs", "", "Authorization", "bearer correct horse").WantStatus(t,
		204)
	w.Do(t, "GET", "/health", "").WantStatus(t, 200)
	if strings.Contains(w.log.String(), "correct horse") {
		t.Error("the token is in the log")
	}
}

// TestConfig: a wrong config is refused.
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, invalidate := range map[string]func(*relay.Config){
		"no engine":        func(c *relay.Config) { c.Engine = nil },
		"no log":           func(c *relay.Config) { c.Log = nil },
		"no registry":      func(c *relay.Config) { c.Registry = nil },
		"num_jobs":         func(c *relay.Config) { c.MaxNumJobs = 0 },
		"body limit":       func(c *relay.Config) { c.BodyLimit = 0 },
		"retryable status": func(c *relay.Config) { c.RetryableStatus = http.StatusTeapot },
	} {
		c := config()
		c.Engine = testkit.MemoryEngine(t)
		c.Log, c.Registry = slog.New(slog.DiscardHandler), newRegistry()
		if _, err := relay.New(c); err != nil {
			t.Fatal(err)
		}
		c.Registry = newRegistry()
		invalidate(&c)
		if _, err := relay.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func relayToken(text string) settings.Secret { return settings.NewSecret(text) }
