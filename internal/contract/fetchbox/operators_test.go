package fetchbox_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
	settings "github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/testkit"
)

func TestSnapshot(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.submit(t, manifest(3))
		t.Run("FB-052 FB-054 FB-055 FB-056 FB-057 FB-058 a job on its way", func(t *testing.T) {
			was := w.status(t, r.JobID, "queued")
			if was.LastError != nil || was.LogCursor.Stream != "jobs.logs" ||
				was.LogCursor.Offset == 0 {
				t.Errorf("got %+v", was)
			}
			for i, step := range []struct {
				do                func()
				status            string
				completed, failed int
				last              string
			}{
				{func() { w.claimOnly(t, r.JobID) }, "in_progress", 0, 0, ""},
				{func() { w.awaitEnd(t, r.JobID, storedOutcome) }, "in_progress", 1, 0, ""},
				{func() { w.awaitEnd(t, r.JobID, brokeOutcome) }, "in_progress", 1, 1, "HTTP_403"},
				{func() { w.finishClaimed(t, storedOutcome) }, "in_progress", 2, 1, "HTTP_403"},
				{func() { w.finalize(t, 1) }, "failed", 2, 1, "HTTP_403"},
			} {
				w.clock.Advance(time.Second)
				step.do()
				v := w.get(t, r.JobID)
				last := ""
				if v.LastError != nil {
					last = v.LastError.Code
				}
				assertEqual(t, fmt.Sprint("step ", i),
					fmt.Sprint(v.Status, v.Total, v.Completed, v.Failed, last),
					fmt.Sprint(step.status, 3, step.completed, step.failed, step.last))
				if !v.UpdatedAt.After(was.UpdatedAt) {
					t.Errorf("step %d: updated at %s after %s", i, v.UpdatedAt, was.UpdatedAt)
				}
				was = v
			}
		})
		t.Run("FB-055 G-FB-03 completed when all succeeded", func(t *testing.T) {
			r := w.submit(t, manifest(2))
			w.awaitEnd(t, r.JobID, storedOutcome)
			w.status(t, r.JobID, "in_progress")
			w.awaitEnd(t, r.JobID, storedOutcome)
			w.status(t, r.JobID, "completed")
			w.finalize(t, 1)
			w.status(t, r.JobID, "completed")
		})
		t.Run("FB-056 FB-086 a run that ends five times counts once", func(t *testing.T) {
			r := w.submit(t, manifest(2))
			j := w.claimOnly(t, r.JobID)
			for i := range 5 {
				_, err := w.engine.Finish(t.Context(), currentRun(j), storedOutcome)
				assertEqual(t, fmt.Sprint("time ", i+1), err == nil, i == 0)
				assertEqual(t, "completed", w.get(t, r.JobID).Completed, 1)
			}
		})
		t.Run("FB-083 FB-055 a try that may be repeated ends nothing", func(t *testing.T) {
			r := w.submit(t, manifest(1))
			again := fetchbox.BrokenOutcome("HTTP_503", true, 0)
			for n := 1; n < tries; n++ {
				w.awaitEnd(t, r.JobID, again)
				assertEqual(t, "counts", fmt.Sprint(w.status(t, r.JobID, "in_progress").Failed),
					"0")
				w.clock.Advance(time.Hour)
				w.sweep(t)
			}
			w.awaitEnd(t, r.JobID, again)
			w.finalize(t, 1)
			v := w.status(t, r.JobID, "failed")
			assertEqual(t, "last error", *v.LastError, problem{"HTTP_503", "it broke"})
		})
		t.Run("FB-053 an unknown id", func(t *testing.T) {
			for _, id := range []string{"00000000-0000-7000-8000-000000000000", "nothing", "%00",
				strings.Repeat("x", 300)} {
				w.Do(t, "GET", "/operators/jobs/"+id, "").WantError(t, 404, "NOT_FOUND")
				w.Do(t, "GET", "/operators/jobs/"+id+"/logs", "").WantError(t, 404, "NOT_FOUND")
			}
		})
	})
}

func TestList(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		byStatus := map[string][]string{} // newest first
		var all []string
		for i := range 30 {
			r := w.submit(t, manifest(1), "X-Fetchbox-Job-Type", []string{gallery, "default"}[i%2])
			status := []string{"queued", "in_progress", "completed", "failed", "completed"}[i%5]
			switch i % 5 {
			case 1:
				w.claimOnly(t, r.JobID)
			case 2:
				w.awaitEnd(t, r.JobID, storedOutcome)
				w.finalize(t, 1)
			case 3:
				w.awaitEnd(t, r.JobID, brokeOutcome)
				w.finalizeAll(t)
			case 4:
				w.awaitEnd(t, r.JobID, storedOutcome) // the handler was not called yet
			}
			byStatus[status] = append([]string{r.JobID}, byStatus[status]...)
			all = append([]string{r.JobID}, all...)
			w.clock.Advance(time.Second)
		}
		pages := func(query string) (ids []string) {
			for cursor := ""; ; {
				p := testkit.DecodeReply[struct {
					Items      []view
					NextCursor *string `json:"next_cursor"`
					HasMore    bool    `json:"has_more"`
				}](t, w.Do(t, "GET", "/operators/jobs?limit=4"+query+cursor, "").WantStatus(t, 200))
				for _, v := range p.Items {
					ids = append(ids, v.JobID)
				}
				if p.HasMore != (p.NextCursor != nil) || len(p.Items) > 4 ||
					(p.HasMore && len(p.Items) < 4) {
					t.Fatalf("a page of %d, more %t, cursor %v", len(p.Items), p.HasMore,
						p.NextCursor)
				}
				if !p.HasMore {
					return ids
				}
				cursor = "&cursor=" + *p.NextCursor
			}
		}
		t.Run("G-FB-37 all, newest first, page by page", func(t *testing.T) {
			assertEqual(t, "jobs", strings.Join(pages(""), " "), strings.Join(all, " "))
		})
		for status, want := range byStatus {
			t.Run("G-FB-37 those that are "+status, func(t *testing.T) {
				assertEqual(t, "jobs", strings.Join(pages("&status="+status), " "),
					strings.Join(want, " "))
			})
		}
		t.Run("G-FB-37 20 at a time", func(t *testing.T) {
			p := testkit.DecodeReply[struct{ Items []view }](t,
				w.Do(t, "GET", "/operators/jobs", "").WantStatus(t, 200))
			assertEqual(t, "items", len(p.Items), 20)
		})
		for _, query := range []string{"status=done", "status=QUEUED", "limit=0", "limit=101",
			"limit=x", "cursor=x", "cursor=MS54", "limit=1&limit=2"} {
			t.Run("G-FB-37 a wrong "+query, func(t *testing.T) {
				w.Do(t, "GET", "/operators/jobs?"+query, "").WantError(t, 400, "INVALID_PAYLOAD")
			})
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	c := config()
	c.Token, c.OperatorToken = settings.NewSecret("client-token"),
		settings.NewSecret("operator-token")
	w := inMemory(t, c)
	routes := []struct{ method, path string }{{"GET", "/operators/jobs"},
		{"GET", "/operators/jobs/x"}, {"GET", "/operators/jobs/x/logs"},
		{"GET", "/operators/health"}, {"GET", "/operators/dlq"},
		{"POST", "/operators/dlq/1/replay"}}
	for _, r := range routes {
		t.Run("FB-067 G-FB-01 "+r.method+" "+r.path, func(t *testing.T) {
			for _, header := range []string{"", "Bearer client-token", "Bearer x",
				"operator-token"} {
				got := w.Do(t, r.method, r.path, "", "Authorization", header).WantError(t, 401,
					"UNAUTHORIZED")
				if got.Header.Get("WWW-Authenticate") == "" {
					t.Error("it does not say how")
				}
			}
			if got := w.Do(t, r.method, r.path, "", "Authorization",
				"Bearer operator-token"); got.Status == 401 {
				t.Errorf("got %d", got.Status)
			}
		})
	}
	t.Run("FB-040 G-FB-31 POST /jobs", func(t *testing.T) {
		w.post(t, manifest(1)).WantError(t, 401, "UNAUTHORIZED")
		w.post(t, manifest(1), "Authorization", "Bearer operator-token").WantError(t, 401,
			"UNAUTHORIZED")
		w.post(t, manifest(1), "Authorization", "Bearer client-token").WantStatus(t, 202)
	})
	t.Run("FB-067 open without a token", func(t *testing.T) {
		open := inMemory(t, config())
		open.Do(t, "GET", "/operators/jobs", "").WantStatus(t, 200)
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	type answer struct {
		Status     string
		Components map[string]struct{ Status, Detail string }
	}
	read := func(t *testing.T, w *world, status int) answer {
		return testkit.DecodeReply[answer](t,
			w.Do(t, http.MethodGet, "/operators/health", "").WantStatus(t, status))
	}
	t.Run("FB-065 G-FB-39 all five", func(t *testing.T) {
		a := read(t, inMemory(t, config()), 200)
		for _, name := range []string{"api", "ledger", "stream", "storage", "proxy_pools"} {
			assertEqual(t, name, a.Components[name].Status, "ok")
		}
		assertEqual(t, "status", a.Status, "ok")
		assertEqual(t, "components", len(a.Components), 5)
	})
	t.Run("FB-065 FB-066 without a proxy that works it still serves", func(t *testing.T) {
		c := config()
		c.Pools = map[string]*fetchbox.Pool{"eu": {Primary: secrets("http://127.0.0.1:1")}}
		a := read(t, inMemory(t, c), 200)
		assertEqual(t, "status", a.Status, "degraded")
		assertEqual(t, "proxy_pools", a.Components["proxy_pools"].Status, "down")
	})
	t.Run("FB-065 FB-066 the bucket of a job type that takes nothing is named", func(t *testing.T) {
		w := inMemory(t, config())
		// a file where the bucket should be
		if err := os.WriteFile(filepath.Join(w.dir, "pictures"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		const why = "the bucket pictures is not a folder"
		assertEqual(t, "detail", read(t, w, 503).Components["storage"].Detail, why)
		for _, c := range w.fetchbox.Checks() {
			if err := c.Run(t.Context()); c.Name == "fetchbox storage" &&
				(!job.IsKind(err, job.ReadOnly) || !strings.Contains(err.Error(), why)) {
				t.Errorf("ready: got %v", err)
			}
		}
	})
	for name, broken := range map[string]func(w *world){
		"ledger": func(w *world) { w.store.Close() },
		"stream": func(w *world) { w.streams.Close() },
		"storage": func(w *world) {
			_ = os.RemoveAll(w.dir)
			_ = os.WriteFile(filepath.Clean(w.dir), nil, 0o600)
		},
	} {
		t.Run("FB-065 FB-066 without its "+name, func(t *testing.T) {
			w := inMemory(t, config())
			broken(w)
			a := read(t, w, 503)
			for part, is := range a.Components {
				want := "ok"
				if part == name {
					want = "down"
				}
				assertEqual(t, part, is.Status, want)
			}
			assertEqual(t, "status", a.Status, "down")
		})
	}
}
