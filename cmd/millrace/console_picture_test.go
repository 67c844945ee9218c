package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// maxPicture bounds the picture of the README, in bytes.
const maxPicture = 300 << 10

// TestConsolePicture: the README shows the console, in a picture that is not too large for it. The
// picture is the one that this test takes of a server that has worked for an hour. To renew it:
//
//	MILLRACE_TEST_SCREENSHOTS=shots go test -run TestConsolePicture ./cmd/millrace
//	mv cmd/millrace/shots/readme.png docs/console.png
func TestConsolePicture(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat("../../docs/console.png"); err != nil || info.Size() > maxPicture ||
		!strings.Contains(string(readme), "](docs/console.png)") {
		t.Errorf("the README has no picture of the console: %v, %v", info, err)
	}
	if os.Getenv("MILLRACE_TEST_SCREENSHOTS") == "" {
		return
	}
	dir := filepath.Join(t.TempDir(), "data")
	t.Run("hour", func(t *testing.T) { workForAnHour(t, dir) })
	s := launchIn(t, dir, "--set", "log.level=error", "--set", "operator.token=secret")
	c, err := client.New(client.Config{BaseURL: s.url, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	w := &consoleWorld{launchedServer: s, Tab: browser.Open(t, s.url), client: c}
	w.present(t)
	w.login(t)
	for name, dark := range map[string]bool{"readme": false, "readme-dark": true} {
		w.View(t, 1280, dark)
		w.Go(t, "/console")
		browser.Eval[int](t, w.Tab, "document.querySelector('.node').textContent = 'node-1', 0")
		w.ScreenshotWindow(t, name)
		w.Go(t, "/console/queues")
		w.ScreenshotWindow(t, name+"-queues")
		w.Go(t, "/console/queues?view=board")
		w.ScreenshotWindow(t, name+"-board")
	}
}

// workForAnHour lets an hour pass on a database: jobs come in waves, wait, run, and fail now and
// then.
func workForAnHour(t *testing.T, dir string) {
	clock := testkit.NewClock()
	begin := time.Now().Add(10*time.Second - time.Hour).Truncate(10 * time.Second)
	clock.Jump(begin.Sub(clock.Now()))
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "millrace.db"),
		Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	e := testkit.NewEngine(t, store, clock, engine.JobType{Name: "relay",
		Machine: job.MustMachine(map[job.State]job.Phase{"ready": job.Ready, "leased": job.Leased},
			[]job.Transition{{From: job.StateNone, On: job.Submitted, To: "ready"},
				{From: "ready", On: job.Claimed, To: "leased"},
				{From: "leased", On: job.Expired, To: "ready"},
				{From: "leased", On: job.Failed, To: job.StateNone},
				{From: "leased", On: job.Succeeded, To: job.StateNone}})})
	recorder, err := series.New(series.Config{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	requests := uint64(0)
	recorder.CountRequests("relay", func() (all, failed uint64) {
		return requests, requests / 4000
	})
	for step := range 359 {
		x := float64(step)
		wave := 1 + math.Sin(x/23)*math.Sin(x/7)/2 + float64(step%5)/20
		for i, queue := range []string{"mail", "thumbnails", "invoices"} {
			passJobs(t, e, clock, queue, step, int(wave*float64(30-9*i)))
			requests += uint64(wave * 200)
		}
		if _, err := recorder.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.Advance(10*time.Second - 6*stepRun(step))
	}
}

// stepRun is how long the jobs of a step run.
func stepRun(step int) time.Duration {
	ms := 300 + 200*math.Sin(float64(step)/15) + float64(step*step%97)
	return time.Duration(ms) * time.Millisecond
}

// passJobs submits jobs to a queue, claims all but a few, which wait for the next time, and ends
// them.
func passJobs(t *testing.T, e *engine.Engine, clock *testkit.Clock, queue string, step, n int) {
	t.Helper()
	var all []engine.Submission
	for i := range n {
		all = append(all, engine.Submission{Job: job.Job{Queue: queue, Lease: time.Hour,
			ID: job.ID{JobType: "relay", Key: fmt.Sprint(queue, step, "-", i)}}})
	}
	if _, err := e.Submit(t.Context(), engine.Unique, all); err != nil {
		t.Fatal(err)
	}
	clock.Advance(stepRun(step))
	maxShown := n + 4 - step/9%9
	if step > 356 {
		maxShown = 1000 // the last ones take what is left
	}
	claimed, err := e.Claim(t.Context(), engine.ClaimRequest{JobType: "relay",
		Queues: []string{queue}, Max: maxShown, Worker: "w"})
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(stepRun(step))
	var ends []engine.FinishRequest
	for i, j := range claimed {
		on := job.Succeeded
		if (i+step)%40 == 0 {
			on = job.Failed
		}
		ends = append(ends, engine.FinishRequest{Run: engine.Run{Run: j.Run},
			Outcome: engine.Outcome{On: on}})
	}
	for _, r := range e.FinishAll(t.Context(), ends) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// present makes what the overview shows of the present: jobs that wait and run, dead letters, a
// paused queue, and one for which nobody asks.
func (w *consoleWorld) present(t *testing.T) {
	t.Helper()
	for _, q := range []struct {
		name string
		jobs int
	}{{"mail", 14}, {"thumbnails", 41}, {"invoices", 6}, {"archive", 3}} {
		for i := range q.jobs {
			w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"taskflow","request":
				{"name":"send %[1]s","queue":"%[1]s","payload":{"n":%d}}}`, q.name, i), 201)
		}
	}
	for _, run := range w.claim(t, "mail", 5, "mailer-1")[:3] {
		w.send(t, "POST", "/worker/v1/runs/"+run+"/fail",
			`{"error":"550 no such user","retryable":false}`, 200)
	}
	w.claim(t, "thumbnails", 4, "shrinker-1")
	w.send(t, "PATCH", "/admin/v1/queues/taskflow/invoices", `{"paused":true}`, 200)
}
