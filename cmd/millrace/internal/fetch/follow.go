package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// Following is reading: FetchBox sends nothing by itself. Each round reads every job that has not
// ended and shows all of them:
//
//	refreshJobs ──▶ reporter.show ──▶ next tick, until no job is open
//
// On a terminal the reporter paints bars over the ones before; elsewhere, as in a log of CI, it
// writes lines that stay. A server that is unavailable is reported once for each outage, and asked
// again.

// pollInterval is the time between two requests for the state of a job, and between two readings of
// its log.
const pollInterval = 250 * time.Millisecond

// follow reads the jobs until all have ended, and shows their progress. It goes on while the server
// is unavailable. A refused token is an error at once, as is an interruption. There is no time
// limit: a manifest of thousands of downloads may take hours.
func follow(ctx context.Context, p cli.Process, box *client.FetchBox, jobs []*followedJob) error {
	shown := newReporter(p)
	defer shown.end()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	unavailable := false
	for {
		open, err := refreshJobs(ctx, box, jobs)
		switch lost := errors.Is(err, client.ErrRetryable); {
		case ctx.Err() != nil:
			return cli.ErrInterrupted
		case errors.Is(err, client.ErrUnauthorized):
			return cli.WithCode(cli.ExitUnauthorized,
				fmt.Errorf("the server refuses the operator's token (--operator-token or "+
					"MILLRACE_OPERATOR_TOKEN): %w", err))
		case err != nil && !lost:
			return cli.RemoteError(ctx, err)
		case lost && !unavailable:
			shown.printf("the server is unavailable: %v", err)
			unavailable = true
		case err == nil:
			unavailable = false
			shown.show(jobs)
			if open == 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return cli.ErrInterrupted
		}
	}
}

// refreshJobs reads the jobs that have not ended and returns how many still have not. It stops at
// the first that cannot be read; a job that cannot be read stays as it was.
func refreshJobs(ctx context.Context, box *client.FetchBox, jobs []*followedJob) (open int,
	err error) {
	for _, j := range jobs {
		if j.Finished() {
			continue
		}
		now, err := box.Job(ctx, j.ID)
		if err != nil {
			return 0, fmt.Errorf("job %s: %w", j.ID, err)
		}
		j.FetchBoxJob = now
		if !j.Finished() {
			open++
		}
	}
	return open, nil
}

// reporter shows how far jobs have come: with a bar for each on a terminal, with lines elsewhere.
type reporter interface {
	show(jobs []*followedJob)          // after each reading of the jobs
	printf(format string, args ...any) // writes a line that stays
	end()                              // must be called once
}

// newReporter returns the reporter for standard error; standard output is left to the report. The
// size of a terminal is read for each drawing, as it may change.
func newReporter(p cli.Process) reporter {
	if f, ok := p.Stderr.(*os.File); ok && cli.IsTerminal(p.Stderr) {
		return &barReporter{out: p.Stderr, size: func() (int, int, error) {
			return term.GetSize(int(f.Fd()))
		}}
	}
	return &lineReporter{all: p.NewProgress("fetch", 0), reported: map[string]bool{}}
}

// lineReporter writes a line for each job that has ended, and every few seconds one for all jobs.
type lineReporter struct {
	all      *cli.Progress
	reported map[string]bool // ids of the jobs that have their line
}

// show writes a line for each job that has ended since the last call, and updates the line for all.
func (l *lineReporter) show(jobs []*followedJob) {
	done, lost, total := 0, 0, 0
	for _, j := range jobs {
		done, lost, total = done+j.Completed, lost+j.Failed, total+j.Total
		if j.Finished() && !l.reported[j.ID] {
			l.reported[j.ID] = true
			l.all.Printf("%s: %s, %s", j.title(), j.Status, j.progress())
		}
	}
	l.all.SetTotal(int64(done+lost), int64(total),
		fmt.Sprintf("%d of %d done, %d failed", done, total, lost))
}

// printf writes a line, which also counts as the state of all jobs until show is called again.
func (l *lineReporter) printf(format string, args ...any) {
	l.all.Printf(format, args...)
	l.all.Add(0, fmt.Sprintf(format, args...)) // the next lines repeat it until show is called
}

// end stops the lines for all jobs.
func (l *lineReporter) end() { l.all.End() }

// progress counts the downloads of a job that have ended.
func (j *followedJob) progress() string {
	text := fmt.Sprintf("%d of %d", j.Completed, j.Total)
	if j.Failed > 0 {
		text += fmt.Sprintf(", %d failed", j.Failed)
	}
	return text
}

// barReporter draws a bar for each job, one below the other, in the place of those it drew before.
type barReporter struct {
	out io.Writer
	// size returns the size of the terminal in characters.
	size func() (columns, lines int, err error)
	// drawn is how many lines the next drawing replaces.
	drawn int
}

// barWidth is the width of a bar in characters, without its brackets.
const barWidth = 24

// show draws the bars. A terminal whose size cannot be read counts as one of 80 by 24 characters.
func (b *barReporter) show(jobs []*followedJob) {
	columns, lines, err := b.size()
	if err != nil {
		columns, lines = 80, 24
	}
	b.paint(renderBars(jobs, columns, lines))
}

// paint draws lines in the place of those that were drawn last. It writes them at once, so that the
// terminal does not flicker.
func (b *barReporter) paint(lines []string) {
	var text strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\r\x1b[J", b.drawn) // up, to the left, clear all below
	}
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	b.drawn = len(lines)
	_, _ = io.WriteString(b.out, text.String())
}

// printf writes a line in the place of the bars.
func (b *barReporter) printf(format string, args ...any) {
	b.paint([]string{fmt.Sprintf(format, args...)})
	b.drawn = 0 // the line stays: the next bars are drawn below it
}

// end removes the bars: the table of the report follows.
func (b *barReporter) end() { b.paint(nil) }

// renderBars returns a line for each job that fits into a terminal of this size, cut to its width.
// Where not all fit, jobs that have not ended come first, and a last line counts the others.
func renderBars(jobs []*followedJob, columns, lines int) []string {
	maxLines := max(lines-2, 1)
	shown := jobs
	if len(jobs) > maxLines {
		shown = nil
		for _, final := range []bool{false, true} {
			for _, j := range jobs {
				if j.Status.Final() == final {
					shown = append(shown, j)
				}
			}
		}
		shown = shown[:maxLines]
	}
	widest := 0
	for _, j := range shown {
		widest = max(widest, len([]rune(j.title())))
	}
	widest = min(widest, max(columns-barWidth-40, 12))
	var text []string
	for _, j := range shown {
		text = append(text, truncate(fmt.Sprintf("%-*s %s %s, %s", widest,
			truncate(j.title(), widest), j.bar(), j.Status, j.progress()), columns-1))
	}
	if more := len(jobs) - len(shown); more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return text
}

// bar draws the downloads of a job: those that succeeded, those that failed, those still to come.
func (j *followedJob) bar() string {
	total := max(j.Total, 1)
	done := barWidth * j.Completed / total
	lost := barWidth*(j.Completed+j.Failed)/total - done
	return "[" + strings.Repeat("█", done) + strings.Repeat("x", lost) +
		strings.Repeat("·", barWidth-done-lost) + "]"
}

// truncate shortens a text to n characters, the last of which is then an ellipsis.
func truncate(text string, n int) string {
	if name := []rune(text); len(name) > n && n > 0 {
		return string(name[:n-1]) + "…"
	}
	return text
}
