// Package enqueue puts jobs into Relay queues from JSON lines.
//
//	input → lines → batches → connections → server
//
// One goroutine reads the input and cuts it into batches ([lineReader]); each connection sends one
// batch at a time ([enqueuer]). The command remembers which batches are sent and not acknowledged,
// so that a failure can say with which line a repeated run may begin.
//
// A batch is stored as a whole or not at all, and each line has the same id every time (lines.go).
// In mode ignore a batch may therefore be sent again: jobs that are still queued stay as they are.
package enqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// flags are the flags of the command.
type flags struct {
	remote cli.RemoteFlags
	format lineFormat
	// maxRetries is the max_retries of jobs that are made of payloads, if the flag is given.
	maxRetries int
	// mode says what happens to jobs that exist.
	mode string
	// batch is the number of jobs in one request, at most.
	batch int
	// connections is the number of requests at a time.
	connections int
	// fromLine is the first line to send, from 1 on.
	fromLine int
	// retryFor is how long a batch is tried again while the server is unavailable.
	retryFor time.Duration
}

// Command is `millrace enqueue`.
func Command(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "enqueue [FILE | -]",
		Short: "Enqueue jobs in Relay from JSON lines",
		Long: `Enqueue jobs in queues of Relay. The input, a file or standard input, has one JSON
value a line. Lines of an input that stays open are sent within 100 ms. Without
--queue a line is a whole job:

  {"queue":"mail","id":"42","timeout":30,"payload":{"to":"a@example.org"}}

With --queue and --timeout a line is a payload, and its id is taken from the
member --id-from names or made from the line's text and number. Equal lines of one
input are therefore jobs of their own, and the same line under the same number in
another input is the same job: while that is queued, it is not queued again. To
queue it again, give it an id of its own, in the member that --id-from names or in
a whole job.

Jobs are sent in batches; each batch is stored as a whole or not at all. In mode
ignore, the default, a job that is still queued under the same id stays as it
is, so a command that failed can be repeated: nothing is queued twice. A job that
was completed meanwhile is no longer in the queue, though, and would be queued
again; to leave out what was accepted, go on with --from-line as the error says.

While the server is unavailable, each batch is tried again for --retry-for. A pipe cannot
be read a second time: for one that stays open, such as tail -f, give a long time.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("max-retries") {
				f.format.maxRetries = &f.maxRetries
			}
			if err := f.validate(c); err != nil {
				return err
			}
			name := "-"
			if len(args) > 0 {
				name = args[0]
			}
			return f.run(p, name)
		},
	}
	f.register(c)
	return c
}

// register adds the flags to the command.
func (f *flags) register(c *cobra.Command) {
	f.remote.Register(c)
	c.Flags().StringVar(&f.format.queue, "queue", "", "queue of payloads")
	c.Flags().DurationVar(&f.format.timeout, "timeout", 0, "timeout of payloads, such as 30s")
	c.Flags().StringVar(&f.format.idFrom, "id-from", "", "member of the payload that is the id")
	c.Flags().IntVar(&f.maxRetries, "max-retries", 0,
		"how often jobs of payloads may time out; without limit when left out")
	c.Flags().StringVar(&f.mode, "mode", string(client.RelayIgnore),
		"about jobs that exist: ignore, replace or unique")
	c.Flags().IntVar(&f.batch, "batch", 500, "jobs in one request")
	c.Flags().IntVar(&f.connections, "connections", 4,
		"requests at a time; 1 keeps the order of the input")
	c.Flags().IntVar(&f.fromLine, "from-line", 1, "line to begin with")
	c.Flags().DurationVar(&f.retryFor, "retry-for", time.Minute,
		"how long to try again while the server is unavailable; 0 for not at all")
}

// validate refuses flags that do not go together.
func (f *flags) validate(c *cobra.Command) error {
	given := func(name string) bool { return c.Flags().Changed(name) }
	switch {
	case f.mode != string(client.RelayIgnore) && f.mode != string(client.RelayReplace) &&
		f.mode != string(client.RelayUnique):
		return cli.UsageError("--mode is ignore, replace or unique")
	case given("queue") != given("timeout"):
		return cli.UsageError("--queue and --timeout go together: they make jobs of payloads")
	case given("queue") && f.format.queue == "":
		return cli.UsageError("--queue is empty")
	case !given("queue") && (given("id-from") || given("max-retries")):
		return cli.UsageError("--id-from and --max-retries are for payloads, with --queue and " +
			"--timeout")
	case f.retryFor < 0:
		return cli.UsageError("--retry-for is not negative")
	case f.batch < 1 || f.connections < 1 || f.fromLine < 1:
		return cli.UsageError("--batch, --connections and --from-line are at least 1")
	}
	return nil
}

// regularSize is the size of a regular file, for the progress; 0 for anything else.
func regularSize(file *os.File) int64 {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// run sends the jobs of the named input, "-" for standard input, and prints how many there were. A
// file that cannot be opened is a usage error; after any error nothing is printed, as the error
// says how far the input was accepted.
func (f *flags) run(p cli.Process, name string) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	in, size := p.Stdin, int64(0)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return cli.WithCode(cli.ExitUsage, err)
		}
		defer file.Close()
		in, size = file, regularSize(file)
	}
	f.remote.Retry.MaxTries = 1 // send repeats them
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	e := &enqueuer{relay: c.Relay(), mode: client.RelayMode(f.mode),
		progress:       p.NewProgress("enqueue", size),
		unacknowledged: map[int]bool{}, fromLine: f.fromLine, retryFor: f.retryFor,
		idsMade: f.format.queue != "" && f.format.idFrom == ""}
	e.progress.ChangesOnly = true // an input may stay open for days without a line
	started := p.Elapsed()
	err = e.feed(ctx, newLineReader(ctx, in, f.format, f.batch, f.fromLine), f.connections)
	e.progress.End()
	if err != nil {
		return err
	}
	e.report(p.Stdout, p.Elapsed()-started)
	return nil
}

// enqueuer sends batches over several connections and records which were accepted. A batch is named
// by its first line:
//
//	markSent ──▶ unacknowledged ──▶ markAccepted      accepted
//	                   └──▶ an error                  stays, and bounds resumeHint
type enqueuer struct {
	relay    *client.Relay
	mode     client.RelayMode
	progress *cli.Progress
	fromLine int
	retryFor time.Duration
	// idsMade says that ids are made of lines and their positions, not taken from a member.
	idsMade bool

	mu sync.Mutex
	// accepted counts jobs.
	accepted int64
	// unacknowledged has the first lines of the batches that were sent and not accepted.
	unacknowledged map[int]bool
	// readTo is the last line of the batches that were sent.
	readTo int
}

// feed sends everything in r over so many connections. The first failure stops all of them; of
// several errors it returns that of the earliest line. It returns when every connection has ended,
// so that each batch is either accepted or in unacknowledged. With one connection the jobs keep the
// order of the input.
func (e *enqueuer) feed(ctx context.Context, r *lineReader, connections int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := make(chan jobBatch)
	failures := make(chan lineError, connections+1)
	var senders sync.WaitGroup
	for range connections {
		senders.Go(func() {
			for b := range batches {
				if err := e.send(ctx, b); err != nil {
					failures <- *err
					cancel()
					return
				}
			}
		})
	}
	if err := e.dispatch(ctx, r, batches); err != nil {
		failures <- *err
	}
	close(batches)
	senders.Wait()
	close(failures)
	return earliest(failures)
}

// dispatch passes the batches to the senders until the input or the context ends. A batch counts as
// sent before a sender takes it: an interruption in between then keeps its lines in the hint.
func (e *enqueuer) dispatch(ctx context.Context, r *lineReader,
	batches chan<- jobBatch) *lineError {
	for {
		b, err := r.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return &lineError{r.line, cli.WithCode(cli.ExitInterrupted,
				fmt.Errorf("interrupted; %s", e.resumeHint()))}
		case err != nil:
			return &lineError{r.line, cli.FailedError("%w%s", err, e.correctHint(err))}
		}
		e.markSent(b)
		select {
		case batches <- b:
		case <-ctx.Done():
			return &lineError{b.lines[0],
				cli.WithCode(cli.ExitInterrupted, fmt.Errorf("interrupted; %s", e.resumeHint()))}
		}
	}
}

// lineError is an error with the line of the input where it occurred.
type lineError struct {
	line int
	err  error
}

// earliest returns the error of the earliest line. An interruption counts only where there is no
// other error: an error of one connection interrupts the others.
func earliest(failures <-chan lineError) error {
	var first *lineError
	rank := func(f *lineError) int {
		if cli.ExitCode(f.err) == cli.ExitInterrupted {
			return 1
		}
		return 0
	}
	for f := range failures {
		if first == nil || cmp.Or(cmp.Compare(rank(&f), rank(first)),
			cmp.Compare(f.line, first.line)) < 0 {
			first = &f
		}
	}
	if first == nil {
		return nil
	}
	return first.err
}

// send sends a batch and waits until the server has accepted it. An error is final: the batch was
// tried for retryFor by then.
func (e *enqueuer) send(ctx context.Context, b jobBatch) *lineError {
	err := e.relay.Enqueue(ctx, b.jobs, e.mode)
	if errors.Is(err, client.ErrRetryable) && e.retryFor > 0 {
		err = e.sendAgain(ctx, b, err)
	}
	if err != nil {
		return e.batchError(ctx, b, err)
	}
	e.markAccepted(b)
	return nil
}

// The pause between two tries of a batch begins with minPause and doubles up to maxPause. A
// Retry-After is obeyed up to maxRetryAfter.
const (
	minPause      = 100 * time.Millisecond
	maxPause      = 2 * time.Second
	maxRetryAfter = time.Minute
)

// sendAgain repeats a batch that has failed, until it is accepted, refused, or retryFor has passed.
// In mode unique a conflict after a try whose answer was lost may be with that try: it is
// uncertain.
func (e *enqueuer) sendAgain(ctx context.Context, b jobBatch, err error) error {
	defer e.progress.Wait(fmt.Sprintf("the server is unavailable; trying again for %s (--retry-for): %v",
		e.retryFor, err))()
	over, stop := context.WithTimeout(ctx, e.retryFor)
	defer stop()
	uncertain := false
	backoff := clock.Backoff{Min: minPause, Max: maxPause}
	for errors.Is(err, client.ErrRetryable) {
		pause := backoff.Next()
		var fail *client.Error
		if errors.As(err, &fail) {
			uncertain = uncertain || fail.Uncertain
			pause = max(pause, min(fail.RetryAfter, maxRetryAfter))
		}
		if !clock.Sleep(over, pause) {
			return err
		}
		err = e.relay.Enqueue(ctx, b.jobs, e.mode)
		if errors.As(err, &fail) {
			fail.Uncertain = fail.Uncertain || uncertain
		}
	}
	return err
}

// batchError names the lines of a batch that was not accepted, and how to resume. It keeps the exit
// code of the error; an interruption is reported as one, and not as an error of its lines.
func (e *enqueuer) batchError(ctx context.Context, b jobBatch, err error) *lineError {
	where := fmt.Sprintf("lines %d to %d", b.lines[0], b.lines[len(b.lines)-1])
	line := b.lines[0]
	if at, ok := failingLine(b, err); ok {
		line, where = at, fmt.Sprintf("line %d", at)
	}
	hint := e.correctHint(err)
	err = cli.RemoteError(ctx, err)
	if cli.ExitCode(err) == cli.ExitInterrupted {
		return &lineError{line, cli.WithCode(cli.ExitInterrupted,
			fmt.Errorf("interrupted; %s", e.resumeHint()))}
	}
	code := cli.ExitCode(err)
	if errors.Is(err, client.ErrRetryable) {
		code = cli.ExitServer // it answers, and its store is unavailable
	}
	return &lineError{line, cli.WithCode(code, fmt.Errorf("%s: %w%s", where, err, hint))}
}

// failingLine finds the line of the job that the server refused: by the index in the batch, or by
// the queue and id that the message quotes. It reports false where the message names no job.
func failingLine(b jobBatch, err error) (int, bool) {
	var refused *client.Error
	if len(b.lines) == 1 {
		return b.lines[0], true
	}
	if !errors.As(err, &refused) || refused.Status == 0 {
		return 0, false
	}
	var index int
	scanned, _ := fmt.Sscanf(refused.Message, "job %d:", &index) // 0 where it names no job
	if scanned == 1 && index >= 0 && index < len(b.lines) {
		return b.lines[index], true
	}
	for i, job := range b.jobs {
		if strings.Contains(refused.Message,
			fmt.Sprintf("queue %q and id %q ", job.Queue, job.ID)) {
			return b.lines[i], true
		}
	}
	return 0, false
}

// markSent records that a batch is about to be sent.
func (e *enqueuer) markSent(b jobBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unacknowledged[b.lines[0]] = true
	e.readTo = b.lines[len(b.lines)-1]
}

// markAccepted records that the server has acknowledged a batch.
func (e *enqueuer) markAccepted(b jobBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unacknowledged, b.lines[0])
	e.accepted += int64(len(b.jobs))
	e.progress.Add(b.bytes, cli.Pluralize(e.accepted, "job")+" accepted")
}

// resumeHint says with which line a repeated command may begin: every line before it was accepted.
// Lines behind it may have been accepted too, by other connections; in mode ignore their jobs stay
// as they are if they are still queued.
func (e *enqueuer) resumeHint() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	from := max(e.readTo+1, e.fromLine)
	for line := range e.unacknowledged {
		from = min(from, line)
	}
	if from == e.fromLine {
		return runAgain
	}
	return fmt.Sprintf("go on with --from-line %d: everything before it was accepted", from)
}

// correctHint is resumeHint for an error of the input or of the server, behind a semicolon. Lines
// that would be refused again must be corrected first. It is empty for an error which repeating the
// command cannot help, such as a wrong token or a conflict, unless lines were accepted.
func (e *enqueuer) correctHint(err error) string {
	hint := e.resumeHint()
	switch {
	case errors.Is(err, errLine), errors.Is(err, client.ErrInvalid):
		return "; correct the line, then " + hint
	case hint == runAgain && !errors.Is(err, client.ErrRetryable):
		return ""
	}
	return "; " + hint
}

// runAgain is the hint where no line was accepted.
const runAgain = "run it again"

// report prints how many jobs were accepted. In mode ignore the server does not say which of them
// were queued before.
func (e *enqueuer) report(w io.Writer, took time.Duration) {
	note := ""
	switch {
	case e.mode != client.RelayIgnore:
	case e.idsMade:
		note = "; lines sent before and still queued are counted too, and stayed as they were"
	default:
		note = "; jobs still queued under the same id are counted too, and stayed as they were"
	}
	fmt.Fprintf(w, "%s accepted in %s (%s)%s\n", cli.Pluralize(e.accepted, "job"),
		cli.FormatDuration(took), cli.FormatRate(e.accepted, took), note)
}
