package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// seriesView is a series as it is answered.
type seriesView struct {
	Metric, Step    string
	Contract, Queue *string
	From, To        time.Time
	Points          []struct {
		At      time.Time
		Value   *float64
		Partial bool
	}
}

// AD-060, G-AD-15: every metric of a queue is shown in steps from an hour ago on, with the last one
// marked as partial, and what makes no sense is refused.
func TestSeries(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		testkit.Register(t, w.engine, queueContract)
		var all []engine.Submission
		for i := range 4 {
			all = append(all, engine.Submission{Job: job.Job{Queue: "mail", Lease: time.Hour,
				ID: job.ID{JobType: "brief", Key: fmt.Sprint(i)}}})
		}
		if _, err := w.engine.Submit(t.Context(), engine.Unique, all); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(2 * time.Second)
		if _, err := w.api.Series.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		jobs, err := w.engine.Claim(t.Context(), engine.ClaimRequest{JobType: "brief", Max: 3})
		if err != nil || len(jobs) != 3 {
			t.Fatalf("claimed %d, %v", len(jobs), err)
		}
		w.clock.Advance(40 * time.Second)
		if _, err := w.engine.Finish(t.Context(), engine.Run{Run: jobs[0].Run},
			engine.Outcome{On: job.Succeeded}); err != nil {
			t.Fatal(err)
		}
		for metric, want := range map[string]float64{"submitted": 4, "started": 3, "succeeded": 1,
			"failed": 0, "depth": 4, "oldest": 2, "wait_p50": 1.75, "wait_p95": 2,
			"run_p50": 40, "run_p95": 40} {
			s := get[seriesView](t, w, "/admin/v1/series?contract=brief&queue=mail&metric="+metric)
			sum := 0.0
			for _, p := range s.Points {
				if p.Value != nil {
					sum += *p.Value
				}
			}
			last := s.Points[len(s.Points)-1]
			if sum != want || s.Metric != metric || *s.Contract != "brief" || *s.Queue != "mail" ||
				s.Step != "10s" || s.To.Sub(s.From) < time.Hour || !last.Partial ||
				s.Points[0].Partial || len(s.Points) < 360 {
				t.Errorf("%s: got %v, want %v, of %+v", metric, sum, want, s)
			}
		}
		s := get[seriesView](t, w, "/admin/v1/series?metric=submitted&step=1h&"+
			"from=2026-02-27T00:00:00Z&to=2026-02-28T00:00:00Z")
		if len(s.Points) != 24 || s.Contract != nil {
			t.Errorf("got %+v", s)
		}
		for query, about := range map[string]string{
			"":                           "metric is required: one of depth, ",
			"metric=":                    "metric is required: one of depth, ",
			"metric=depths":              "metric is required: one of depth, ",
			"metric=depth&queue=mail":    "contract",
			"metric=depth&contract=brie": "contract",
			"metric=errors&contract=brief&queue=mail":         "queues",
			"metric=depth&step=7s":                            "step",
			"metric=depth&step=0s":                            "step",
			"metric=depth&step=10s&from=2026-02-27T00:00:00Z": "multiple of 1h",
			"metric=depth&from=2027-02-27T00:00:00Z":          "from",
			"metric=depth&from=2020-02-27T00:00:00Z":          "from",
			"metric=depth&step=1m&from=2026-02-27T12:00:00Z":  "",
			"metric=depth&from=yesterday":                     "from", "metric=depth&steps=1m": "steps",
		} {
			r := w.do(t, w.api.Token(), "GET", "/admin/v1/series?"+query, "")
			if about == "" {
				r.WantStatus(t, 200)
				continue
			}
			r.WantError(t, 400, "VALIDATION_ERROR")
			if !strings.Contains(r.Body, about) {
				t.Errorf("%s: got %s", query, r.Body)
			}
		}
	})
}
