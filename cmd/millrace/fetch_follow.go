package main

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

// fetchPollInterval is how often jobs are looked at while they are followed.
const fetchPollInterval = 250 * time.Millisecond

// follow looks at the jobs until all are settled. It goes on while the server is away.
func follow(ctx context.Context, p cli.Process, box *client.FetchBox, jobs []*fetchedJob) error {
	shown := newFetchReporter(p, jobs)
	defer shown.end()
	tick := time.NewTicker(fetchPollInterval)
	defer tick.Stop()
	away := false
	for {
		open, err := refreshJobs(ctx, box, jobs)
		switch lost := errors.Is(err, client.ErrRetryable); {
		case ctx.Err() != nil:
			return cli.ErrInterrupted
		case errors.Is(err, client.ErrUnauthorized):
			return cli.WithCode(cli.ExitServer,
				fmt.Errorf("the server refuses the operator's token (--operator-token or "+
					"MILLRACE_OPERATOR_TOKEN): %w", err))
		case err != nil && !lost:
			return cli.RemoteError(ctx, err)
		case lost && !away:
			shown.printf("the server is away: %v", err)
			away = true
		case err == nil:
			away = false
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

// look reads the jobs that are open and counts those that still are.
func refreshJobs(ctx context.Context, box *client.FetchBox, jobs []*fetchedJob) (open int,
	err error) {
	for _, j := range jobs {
		if j.Status.Final() {
			continue
		}
		if j.FetchBoxJob, err = readFetched(ctx, box, j); err != nil {
			return 0, err
		}
		if !j.Status.Final() {
			open++
		}
	}
	return open, nil
}

// readFetched leaves a job as it was where it cannot be read.
func readFetched(ctx context.Context, box *client.FetchBox, j *fetchedJob) (client.FetchBoxJob,
	error) {
	now, err := box.Job(ctx, j.ID)
	if err != nil {
		return j.FetchBoxJob, fmt.Errorf("job %s: %w", j.ID, err)
	}
	return now, nil
}

// fetchProgress tells how far jobs are: a bar for each on a terminal, plain lines elsewhere.
type fetchReporter interface {
	show(jobs []*fetchedJob)
	printf(format string, args ...any)
	end()
}

func newFetchReporter(p cli.Process, jobs []*fetchedJob) fetchReporter {
	if f, ok := p.Stderr.(*os.File); ok && cli.IsTerminal(p.Stderr) {
		return &fetchBars{out: p.Stderr, size: func() (int, int, error) {
			return term.GetSize(int(f.Fd()))
		}}
	}
	return &fetchLines{all: p.NewProgress("fetch", 0), reported: map[string]bool{}}
}

// fetchLines writes a line for each job that ends, and now and then one for all.
type fetchLines struct {
	all      *cli.Progress
	reported map[string]bool
}

func (l *fetchLines) show(jobs []*fetchedJob) {
	done, lost, total := 0, 0, 0
	for _, j := range jobs {
		done, lost, total = done+j.Completed, lost+j.Failed, total+j.Total
		if j.Status.Final() && !l.reported[j.ID] {
			l.reported[j.ID] = true
			l.all.Printf("%s: %s, %s", j.title(), j.Status, j.progress())
		}
	}
	l.all.SetTotal(int64(done+lost), int64(total),
		fmt.Sprintf("%d of %d done, %d failed", done, total, lost))
}

func (l *fetchLines) printf(format string, args ...any) {
	l.all.Printf(format, args...)
	l.all.Add(0, fmt.Sprintf(format, args...)) // until there is other news
}

func (l *fetchLines) end() { l.all.End() }

// NewProgress says how far a job is.
func (j *fetchedJob) progress() string {
	text := fmt.Sprintf("%d of %d", j.Completed, j.Total)
	if j.Failed > 0 {
		text += fmt.Sprintf(", %d failed", j.Failed)
	}
	return text
}

// fetchBars draws a bar for each job, one below the other, over those it drew before.
type fetchBars struct {
	out   io.Writer
	size  func() (columns, lines int, err error)
	drawn int // lines
}

const barWidth = 24

func (b *fetchBars) show(jobs []*fetchedJob) {
	columns, lines, err := b.size()
	if err != nil {
		columns, lines = 80, 24
	}
	b.paint(renderBars(jobs, columns, lines))
}

// paint draws lines where the last ones stand.
func (b *fetchBars) paint(lines []string) {
	var text strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\r\x1b[J", b.drawn)
	}
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	b.drawn = len(lines)
	_, _ = io.WriteString(b.out, text.String())
}

func (b *fetchBars) printf(format string, args ...any) {
	b.paint([]string{fmt.Sprintf(format, args...)})
	b.drawn = 0 // it stays
}

func (b *fetchBars) end() { b.paint(nil) }

// renderBars is a line for each job, of those that are open first if there are more than fit.
func renderBars(jobs []*fetchedJob, columns, lines int) []string {
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

// bar draws what succeeded, what failed and what is open.
func (j *fetchedJob) bar() string {
	total := max(j.Total, 1)
	done := barWidth * j.Completed / total
	lost := barWidth*(j.Completed+j.Failed)/total - done
	return "[" + strings.Repeat("█", done) + strings.Repeat("x", lost) +
		strings.Repeat("·", barWidth-done-lost) + "]"
}

// truncate shortens a text to n characters at most.
func truncate(text string, n int) string {
	if name := []rune(text); len(name) > n && n > 0 {
		return string(name[:n-1]) + "…"
	}
	return text
}
