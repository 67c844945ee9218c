package console

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/series"
)

// CO-006: a sparkline is drawn to the scale of its queue, says its figures in words, has the ready
// jobs of now in its last minute, and a gap where nothing is known.
func TestSpark(t *testing.T) {
	t.Parallel()
	trend := &series.Trend{0: {Depth: 10, Succeeded: 3, Failed: 1}, 1: {Depth: 10},
		2: {Depth: 100_000, Unknown: true}, 58: {Succeeded: 1}}
	trend[2].Depth = 5
	s := sparkOf(trend, 20)
	if s.MaxReady != 20 || s.Succeeded != 4 || s.Failed != 1 {
		t.Errorf("the figures are %+v", s)
	}
	svg := string(s.SVG)
	for _, want := range []string{
		`aria-label="Last hour: at most 20 ready, 4 succeeded, 1 failed"`,
		`class="depth" d="M0 9h4v9h-4zM118 0h2v18h-2z"`,
		`class="ends" d="M0 23h2v8h-2zM116 28h2v3h-2z"`,
		`class="fails" d="M0 20h2v3h-2z"`,
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("there is no %s in %s", want, svg)
		}
	}
	if empty := sparkOf(&series.Trend{}, 0); !strings.Contains(string(empty.SVG),
		`class="depth" d=""`) || empty.MaxReady != 0 {
		t.Errorf("without jobs there is %s", empty.SVG)
	}
}

// The board says of each queue who works on it, whether it is paused or at its limit, and its rate.
func TestBoard(t *testing.T) {
	t.Parallel()
	paused, limited, alone := queueRow{}, queueRow{}, queueRow{}
	paused.Settings.Paused, paused.Ready = true, 1
	limit := 2
	limited.QueueStatus = engine.QueueStatus{QueueCount: job.QueueCount{Ready: 5, Leased: 2}}
	limited.Settings.Live = job.LiveLimits{MaxRunning: &limit,
		Rate: &job.Rate{Starts: 100, Period: time.Minute}}
	limited.Pollers = job.Pollers{Asking: true, Workers: 9, Names: []string{"<b>", "two", "three"}}
	alone.Ready = 1
	for _, row := range []*queueRow{&paused, &limited, &alone} {
		row.JobType, row.Queue, row.Spark = "relay", "mail", sparkOf(&series.Trend{}, row.Ready)
	}
	for _, c := range []struct {
		row  queueRow
		want []string
	}{
		{paused, []string{string(stateBadge("paused")), "no worker"}},
		{limited, []string{string(stateBadge("limited")), "&lt;b&gt;, two, three and 6 more",
			`<span class="quiet">of 2</span>`, "at most 100 in 1m"}},
		{alone, []string{string(stateBadge("attention")), "ready <b>1</b> at most"}},
	} {
		text := page(t, "queues", queuesPage{View: "board", Queues: []queueRow{c.row}})
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %s in %s", want, text)
			}
		}
	}
	if (queueRow{QueueItem: admin.QueueItem{}}).IsLimited() {
		t.Error("a queue without a limit is at its limit")
	}
}
