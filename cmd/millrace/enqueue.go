package main

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
)

type enqueueFlags struct {
	remote      cli.RemoteFlags
	format      lineFormat
	maxRetries  int
	mode        string
	batch       int
	connections int
	fromLine    int
}

func enqueueCommand(p cli.Process) *cobra.Command {
	var f enqueueFlags
	c := &cobra.Command{
		Use:   "enqueue [FILE | -]",
		Short: "Put jobs into Relay queues from JSON lines",
		Long: `Put jobs into Relay queues. The input, a file or standard input, has one JSON
value a line. Lines of an input that stays open are sent within 100 ms. Without --queue a line is a whole job:

  {"queue":"mail","id":"42","timeout":30,"payload":{"to":"a@example.org"}}

With --queue and --timeout a line is a payload, and its id is taken from the
member --id-from names or made from the line and its position.

Jobs are sent in batches; each batch is stored as a whole or not at all. In mode
ignore, the default, a job that is still queued under the same id stays as it
is, so a run that broke off can be repeated: nothing is queued twice. A job that
was completed meanwhile is forgotten, though, and would be queued again; to
leave out what was accepted, go on with --from-line as the failure says.`,
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
	f.remote.Register(c)
	c.Flags().StringVar(&f.format.queue, "queue", "", "queue of bare payloads")
	c.Flags().DurationVar(&f.format.timeout, "timeout", 0, "timeout of bare payloads, such as 30s")
	c.Flags().StringVar(&f.format.idFrom, "id-from", "", "member of the payload that is the id")
	c.Flags().IntVar(&f.maxRetries, "max-retries", 0,
		"how often bare payloads may time out; without limit when left out")
	c.Flags().StringVar(&f.mode, "mode", string(client.RelayIgnore),
		"about jobs that exist: ignore, replace or unique")
	c.Flags().IntVar(&f.batch, "batch", 500, "jobs in one request")
	c.Flags().IntVar(&f.connections, "connections", 4,
		"requests at a time; 1 keeps the order of the input")
	c.Flags().IntVar(&f.fromLine, "from-line", 1, "line to begin with")
	return c
}

func (f *enqueueFlags) validate(c *cobra.Command) error {
	given := func(name string) bool { return c.Flags().Changed(name) }
	switch {
	case f.mode != string(client.RelayIgnore) && f.mode != string(client.RelayReplace) &&
		f.mode != string(client.RelayUnique):
		return cli.UsageError("--mode is ignore, replace or unique")
	case given("queue") != given("timeout"):
		return cli.UsageError("--queue and --timeout go together: they make jobs of bare payloads")
	case given("queue") && f.format.queue == "":
		return cli.UsageError("--queue is empty")
	case !given("queue") && (given("id-from") || given("max-retries")):
		return cli.UsageError("--id-from and --max-retries are for bare payloads, with --queue and " +
			"--timeout")
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

func (f *enqueueFlags) run(p cli.Process, name string) error {
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
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	e := &enqueuer{relay: c.Relay(), mode: client.RelayMode(f.mode),
		progress:       p.NewProgress("enqueue", size),
		unacknowledged: map[int]bool{}, fromLine: f.fromLine,
		idsMade: f.format.queue != "" && f.format.idFrom == ""}
	e.progress.ChangesOnly = true // the input may be open for days
	started := p.Elapsed()
	err = e.feed(ctx, newLineReader(ctx, in, f.format, f.batch, f.fromLine), f.connections)
	e.progress.End()
	if err != nil {
		return err
	}
	e.report(p.Stdout, p.Elapsed()-started)
	return nil
}

// enqueuer sends batches over several connections and knows how far it came.
type enqueuer struct {
	relay    *client.Relay
	mode     client.RelayMode
	progress *cli.Progress
	fromLine int
	idsMade  bool // of lines and their positions

	mu             sync.Mutex
	accepted       int64
	unacknowledged map[int]bool // lines at which batches begin that were sent and not accepted
	readTo         int          // line up to which the input was read
}

// feed sends everything in r. Its error is the one of the earliest line.
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

// dispatch passes the batches to the senders until the input or the context ends.
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
			return &lineError{r.line, cli.FailedError("%w; %s", err, e.resumeHint())}
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

// lineError is an error at a line of the input.
type lineError struct {
	line int
	err  error
}

// earliest is the error at the first line. Interruptions that an error caused come after it.
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

func (e *enqueuer) send(ctx context.Context, b jobBatch) *lineError {
	err := e.relay.Enqueue(ctx, b.jobs, e.mode)
	if err != nil {
		return e.batchError(ctx, b, err)
	}
	e.markAccepted(b)
	return nil
}

// batchError names the lines of a batch that was not accepted, and how to resume.
func (e *enqueuer) batchError(ctx context.Context, b jobBatch, err error) *lineError {
	where := fmt.Sprintf("lines %d to %d", b.lines[0], b.lines[len(b.lines)-1])
	line := b.lines[0]
	if at, ok := failingLine(b, err); ok {
		line, where = at, fmt.Sprintf("line %d", at)
	}
	err = cli.RemoteError(ctx, err)
	if cli.ExitCode(err) == cli.ExitInterrupted {
		return &lineError{line, cli.WithCode(cli.ExitInterrupted,
			fmt.Errorf("interrupted; %s", e.resumeHint()))}
	}
	return &lineError{line, cli.WithCode(cli.ExitCode(err),
		fmt.Errorf("%s: %w; %s", where, err, e.resumeHint()))}
}

// failingLine finds the line that an error of the server is about: by the index in the batch, or by
// the queue and id that the message quotes.
func failingLine(b jobBatch, err error) (int, bool) {
	var refused *client.Error
	if len(b.lines) == 1 {
		return b.lines[0], true
	}
	if !errors.As(err, &refused) || refused.Status == 0 {
		return 0, false
	}
	var index int
	_, scanErr := fmt.Sscanf(refused.Message, "job %d:", &index)
	named := scanErr == nil
	if named && index >= 0 && index < len(b.lines) {
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

func (e *enqueuer) markSent(b jobBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unacknowledged[b.lines[0]] = true
	e.readTo = b.lines[len(b.lines)-1]
}

func (e *enqueuer) markAccepted(b jobBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unacknowledged, b.lines[0])
	e.accepted += int64(len(b.jobs))
	e.progress.Add(b.bytes, cli.Pluralize(e.accepted, "job")+" accepted")
}

// resumeHint says where a repeated run may begin: every line before that was accepted.
func (e *enqueuer) resumeHint() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	from := max(e.readTo+1, e.fromLine)
	for line := range e.unacknowledged {
		from = min(from, line)
	}
	if from == e.fromLine {
		return "run it again"
	}
	return fmt.Sprintf("everything before line %d was accepted: go on with --from-line %d", from,
		from)
}

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
