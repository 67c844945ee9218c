package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// trickle is work that goes on while a test looks at something else: jobs come one after the other,
// and a worker outside of the server ends them.
type trickle struct {
	submitted, ended atomic.Int64
	end              func()
}

// trickleQueue is the queue of the jobs of a trickle, and trickleInterval the time between two.
const (
	trickleQueue    = "trickle"
	trickleInterval = 50 * time.Millisecond
)

// startTrickle begins a trickle, which ends with the test at the latest.
func (w *consoleWorld) startTrickle(t *testing.T) *trickle {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	made, all := &trickle{}, sync.WaitGroup{}
	made.end = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(made.end)
	all.Go(func() {
		worker := client.JobWorker{API: w.client.WorkerAPI(), Contract: client.ContractTaskFlow,
			Name: "trickler", Concurrency: 2,
			Handlers: map[string]client.JobHandler{trickleQueue: func(context.Context,
				*client.JobRun) (json.RawMessage, error) {
				return json.RawMessage(`{"done":true}`), nil
			}},
			AfterRun: func(_ client.ClaimedJob, err error) {
				if err == nil {
					made.ended.Add(1)
				}
			}}
		if err := worker.Run(ctx); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	all.Go(func() {
		for tick := time.NewTicker(trickleInterval); ; {
			status, answer := sendTo(t, http.DefaultClient, "POST", w.url+"/api/v1/jobs",
				`{"name":"n","queue":"`+trickleQueue+`"}`)
			if made.submitted.Add(1); status != http.StatusCreated {
				t.Errorf("a job of the trickle: %d %s", status, answer)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
	return made
}

// goesOn waits until the trickle has ended more jobs.
func (f *trickle) goesOn(t *testing.T) {
	t.Helper()
	before := f.ended.Load()
	testkit.WaitUntil(t, "the work that goes on", func() bool { return f.ended.Load() > before+1 })
}

// stay marks the page, so that stayed can tell a page that has changed by itself from one that was
// loaded again.
func (w *consoleWorld) stay(t *testing.T) {
	t.Helper()
	browser.Eval[bool](t, w.Tab, "window.stays = true")
}

// stayed waits until an expression is true of the page that stay has marked.
func (w *consoleWorld) stayed(t *testing.T, expression string) {
	t.Helper()
	w.WaitFor(t, expression)
	if !browser.Eval[bool](t, w.Tab, "window.stays === true") {
		t.Errorf("CO-001 the page was loaded again before %s", expression)
	}
}

// TestConsoleJourney: CO-001, CO-002, CO-004: what an operator does on a server that works: the
// overview shows, without a reload, that a job was given up; its links lead to the job, which says
// why; a retry by its button is seen to run and to finish, without a reload; the overview is calm
// again. Meanwhile jobs come and go, and none of them is lost.
func TestConsoleJourney(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		var mended atomic.Bool
		asked, release := make(chan bool, 1), make(chan bool)
		source := newOrigin(t, func(rw http.ResponseWriter, r *http.Request) {
			if !mended.Load() {
				http.Error(rw, "not here", http.StatusNotFound)
				return
			}
			asked <- true
			<-release
			_, _ = io.WriteString(rw, bodyOf(r.URL.Path))
		})
		work := w.startTrickle(t)
		w.Go(t, "/console")
		w.stay(t)
		const dead = `document.querySelector('[data-live=totals] a[href$="/dead-letters"] b')
			.textContent`
		work.goesOn(t)
		w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"fetchbox",
			"job_type":"default","request":%s}`, source.resources("way", 1)), http.StatusCreated)
		w.stayed(t, dead+` === "1"`)
		w.Follow(t, `[data-live=totals] a[href$="/dead-letters"]`)
		w.wantTexts(t, "[data-live=groups]", "404")
		w.Follow(t, "tbody td.n a")
		w.Follow(t, "tbody th a")
		page := browser.Eval[string](t, w.Tab, "location.pathname")
		w.wantTexts(t, ".why", "dead")
		w.wantTexts(t, ".failure", "404")
		work.goesOn(t)

		mended.Store(true)
		w.Follow(t, `[data-live=actions] form[action$="/retry"] button`)
		if at := browser.Eval[string](t, w.Tab, "location.pathname"); at != page {
			t.Errorf("CO-004 the retry leads from %s to %s", page, at)
		}
		w.stay(t)
		testkit.Receive(t, "the second try", asked)
		w.stayed(t, `document.querySelector(".why").textContent.includes("downloading")`)
		work.goesOn(t)
		close(release)
		w.stayed(t, `document.querySelector(".why .state").textContent === "done"`)
		w.stayed(t, `document.querySelectorAll("[data-live=actions] form").length === 0`)
		if n := w.audited(t, "job.retry", "job:"+strings.TrimPrefix(page, "/console/jobs/")); n != 1 {
			t.Errorf("AD-006 the audit has %d retries", n)
		}
		w.Go(t, "/console")
		w.WaitFor(t, dead+` === "0"`)
		work.end()
		w.wantAllEnded(t, work)
	}, "--set", "fetchbox.backoff_base=10ms")
}

// wantAllEnded fails unless each job of the trickle has been done once, but for those that came
// when nobody asked any more.
func (w *consoleWorld) wantAllEnded(t *testing.T, work *trickle) {
	t.Helper()
	counts := map[string]int64{}
	var counted struct {
		Items []struct {
			State string
			Count int64
		}
	}
	answer := w.send(t, "GET", "/admin/v1/counts?by=state&contract=taskflow&queue="+trickleQueue, "",
		http.StatusOK)
	if err := json.Unmarshal([]byte(answer), &counted); err != nil {
		t.Fatal(err)
	}
	for _, item := range counted.Items {
		counts[item.State] = item.Count
	}
	if ended := work.ended.Load(); counts["COMPLETED"] != ended || ended == 0 ||
		counts["COMPLETED"]+counts["READY"] != work.submitted.Load() {
		t.Errorf("of %d jobs %d were ended by the worker, and the server has %v",
			work.submitted.Load(), ended, counts)
	}
}

// TestConsolePartFails: CO-002, AD-062: a part that no longer answers is in the overview, with
// since when and a link to the health of the node, which says the same; both show its end.
func TestConsolePartFails(t *testing.T) {
	t.Parallel()
	nats := outside.NewNATS(t, "")
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		const row = `Array.from(document.querySelectorAll("[data-live=parts] tr"),
			row => row.textContent).find(text => text.includes("streams"))`
		w.Go(t, "/console/health")
		w.WaitFor(t, row+`.includes("ok")`)
		nats.Kill()
		w.stay(t)
		w.stayed(t, row+`.includes("failing")`)
		w.Go(t, "/console")
		w.WaitFor(t, attentions+`.some(text => /health .*streams fails: .* ago/.test(text))`)
		w.Follow(t, `[data-live=attention] a[href="/console/health"]`)
		w.WaitFor(t, row+`.includes("failing")`)
		if !browser.Eval[bool](t, w.Tab, `Array.from(document.querySelectorAll(
			"[data-live=parts] tr")).some(row => row.textContent.includes("streams") &&
			Date.parse(row.querySelector("time").dateTime) <= Date.parse(main.dataset.now))`) {
			t.Error("AD-062 health does not say since when the streams fail")
		}
		nats.Restart()
		w.WaitFor(t, row+`.includes("ok")`)
		w.Go(t, "/console")
		w.WaitFor(t, `!`+attentions+`.some(text => text.includes("streams"))`)
	}, "--set", "contracts=fetchbox", "--set", "stream.url="+nats.URL)
}
