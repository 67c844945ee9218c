package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plainInterval is the time between two lines of progress where there is no bar.
const plainInterval = 2 * time.Second

// Progress shows how far long work has come, also while nothing happens: as a bar on a terminal,
// elsewhere as a plain line every plainInterval. It is safe for concurrent use.
type Progress struct {
	label string
	// total is the amount of work in the unit of Add; below 1 if it is unknown.
	total int64
	// TotalUnit follows the percentage and says of what it is one, if the note does not.
	TotalUnit string
	out       io.Writer
	elapsed   func() time.Duration
	// bar is nil where standard error is not a terminal.
	bar *progressbar.ProgressBar
	// stopped is closed by End.
	stopped chan struct{}

	mu      sync.Mutex
	done    int64
	started time.Duration
	note    string
	// ChangesOnly leaves out lines while the state does not change.
	ChangesOnly bool
	// reported says that the state has not changed since it was reported.
	reported bool
	// waits counts the parts of the work that wait, see Wait.
	waits int
	ended bool
}

// NewProgress starts the progress of a piece of work; End must be called when it has ended.
func (p Process) NewProgress(what string, total int64) *Progress {
	g := &Progress{label: what, total: total, out: p.Stderr, elapsed: p.Elapsed,
		started: p.Elapsed(), stopped: make(chan struct{})}
	if IsTerminal(p.Stderr) {
		if total < 1 {
			total = -1
		}
		g.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.Stderr),
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

// reportLoop reports every plainInterval until End.
func (g *Progress) reportLoop() {
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

// report draws the bar again, so that its time goes on, or writes a line. With ChangesOnly it does
// nothing while the state is the one that was reported last.
func (g *Progress) report() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended, g.ChangesOnly && g.reported && g.waits == 0:
	case g.bar != nil:
		_ = g.bar.RenderBlank()
	default:
		g.writeLine()
	}
	g.reported = true
}

// HasBar reports whether the progress is drawn as a bar, which is on a terminal only.
func (g *Progress) HasBar() bool { return g.bar != nil }

// Add records that n more are done, with a note about the whole.
func (g *Progress) Add(n int64, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(g.done+n, note)
}

// Wait records that a part of the work waits for something, until the returned function is called.
// The first one writes a line that says for what, and while any of them waits the progress is
// reported although nothing changes.
func (g *Progress) Wait(what string) (end func()) {
	g.mu.Lock()
	g.waits++
	isFirst := g.waits == 1
	g.mu.Unlock()
	if isFirst {
		g.Printf("%s: %s", g.label, what)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waits--
	}
}

// SetTotal sets how much is done, and the total, which may have changed.
func (g *Progress) SetTotal(done, total int64, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total != total && g.bar != nil {
		g.bar.ChangeMax64(total)
	}
	g.total = total
	g.set(done, note)
}

// set records a state; the caller holds the lock.
func (g *Progress) set(done int64, note string) {
	g.done, g.note, g.reported = done, note, false
	if g.bar != nil {
		g.bar.Describe(g.label + g.TotalUnit + "  " + note)
		_ = g.bar.Set64(done)
	}
}

// writeLine writes a plain line; the caller holds the lock.
func (g *Progress) writeLine() {
	text, percent := g.note, ""
	if g.total > 0 {
		percent = fmt.Sprintf("%d %%%s", 100*min(g.done, g.total)/g.total, g.TotalUnit)
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
	if g.waits > 0 {
		text += "waiting for the server, "
	}
	fmt.Fprintf(g.out, "%s: %s%s\n", g.label, text, FormatDuration(g.elapsed()-g.started))
}

// Printf writes a line of its own between the others.
func (g *Progress) Printf(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bar != nil {
		_ = g.bar.Clear()
	}
	fmt.Fprintf(g.out, format+"\n", args...)
}

// End takes the bar away.
func (g *Progress) End() {
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
