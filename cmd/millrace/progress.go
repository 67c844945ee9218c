package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plainInterval is how often progress is told where nobody sees a bar.
const plainInterval = 2 * time.Second

// newProgress tells how far long work is, also while nothing happens: a bar on a terminal, a plain
// line now and then elsewhere. Safe for concurrent use.
type progress struct {
	label     string
	total     int64  // in the unit of add; below 1 when nobody knows
	totalUnit string // what the total is, where the note alone does not tell
	out       io.Writer
	elapsed   func() time.Duration
	bar       *progressbar.ProgressBar // nil where there is no terminal
	stopped   chan struct{}            // closed by end

	mu          sync.Mutex
	done        int64
	started     time.Duration
	note        string
	changesOnly bool // nothing is told twice
	reported    bool // since the last news
	ended       bool
}

func (p process) newProgress(what string, total int64) *progress {
	g := &progress{label: what, total: total, out: p.stderr, elapsed: p.elapsed,
		started: p.elapsed(), stopped: make(chan struct{})}
	if isTerminal(p.stderr) {
		if total < 1 {
			total = -1
		}
		g.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.stderr),
			progressbar.OptionSetDescription(what),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(total > 0),
			progressbar.OptionShowElapsedTimeOnFinish())
		_ = g.bar.RenderBlank()
	}
	go g.reportLoop()
	return g
}

// reportLoop tells how far it is, every plainInterval, until the end.
func (g *progress) reportLoop() {
	tick := time.NewTicker(plainInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.report()
		case <-g.stopped:
			return
		}
	}
}

func (g *progress) report() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended, g.changesOnly && g.reported:
	case g.bar != nil:
		_ = g.bar.RenderBlank()
	default:
		g.writeLine()
	}
	g.reported = true
}

// add tells that n more are done, and what there is to say about it.
func (g *progress) add(n int64, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(g.done+n, note)
}

// setTotal tells how much is done, of what may by now be another total.
func (g *progress) setTotal(done, total int64, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total != total && g.bar != nil {
		g.bar.ChangeMax64(total)
	}
	g.total = total
	g.set(done, note)
}

// setClosed takes in news; the caller holds the lock.
func (g *progress) set(done int64, note string) {
	g.done, g.note, g.reported = done, note, false
	if g.bar != nil {
		g.bar.Describe(g.label + g.totalUnit + "  " + note)
		_ = g.bar.Set64(done)
	}
}

// line writes one plain line; the caller holds the lock.
func (g *progress) writeLine() {
	text, percent := g.note, ""
	if g.total > 0 {
		percent = fmt.Sprintf("%d %%%s", 100*min(g.done, g.total)/g.total, g.totalUnit)
	}
	switch {
	case text == "":
		text = percent
	case percent != "":
		text += " (" + percent + ")"
	}
	if text != "" {
		text += ", "
	}
	fmt.Fprintf(g.out, "%s: %s%s\n", g.label, text, formatDuration(g.elapsed()-g.started))
}

// printf writes a line of its own between the others.
func (g *progress) printf(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bar != nil {
		_ = g.bar.Clear()
	}
	fmt.Fprintf(g.out, format+"\n", args...)
}

// end takes the bar away.
func (g *progress) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.ended = true
	close(g.stopped)
	if g.bar != nil {
		_ = g.bar.Finish()
		_ = g.bar.Clear()
	}
}

// formatDuration writes a duration with no more digits than anybody reads.
func formatDuration(d time.Duration) string {
	for _, step := range []struct{ from, to time.Duration }{{10 * time.Second, time.Second},
		{time.Second, 10 * time.Millisecond}, {10 * time.Millisecond, 100 * time.Microsecond},
		{0, 10 * time.Microsecond}} {
		if d >= step.from {
			return d.Round(step.to).String()
		}
	}
	return d.String()
}

// counted writes a number of things, whose name takes an s for more than one.
func pluralize(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// formatRate writes how many there were in a second.
func formatRate(n int64, took time.Duration) string {
	if took <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f/s", float64(n)/took.Seconds())
}
