package enqueue

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/setting"
)

// Lines become jobs here. A line keeps its number, so that every error can name it and a repeated
// command can start behind the lines that were accepted.

// The limits of the input, in bytes.
const (
	maxLineBytes  = 64 << 20 // of a line: the server's default limit of a body
	maxBatchBytes = 8 << 20  // of the lines of a batch, but for its last line
)

// lineFormat says what a line of JSON stands for: a whole Relay job or, with a queue, a payload.
type lineFormat struct {
	// queue is empty for whole jobs; with a queue the other members count.
	queue string
	// timeout is the timeout of each job.
	timeout time.Duration
	// idFrom is the member of the payload that is the id; empty: the id is made of line and text.
	idFrom string
	// maxRetries is the max_retries of each job; nil for no limit.
	maxRetries *int
}

// errLine is an error of a line itself, which would fail again. Its text begins the error.
var errLine = errors.New("line")

// jobBatch is what one request carries.
type jobBatch struct {
	// number counts the batches from 0 on, without gaps.
	number int
	// lines says where each job is in the input, from 1 on.
	lines []int
	// jobs are in the order of the input.
	jobs []client.RelaySpec
	// bytes is the length of the input from the end of the batch before to the end of this.
	bytes int64
}

// lineReader cuts JSON lines into batches. One goroutine uses it.
type lineReader struct {
	in     *lineInput
	format lineFormat
	// size is the number of jobs of a batch, at most.
	size int
	// maxBytes is the length of the lines of a batch after which no other is added.
	maxBytes int
	// fromLine is the first line that is sent; earlier lines are left out.
	fromLine int

	// line is the line that was read last; 0 before the first.
	line int
	// batches counts the batches that were returned.
	batches int
}

// newLineReader makes a reader that reads until the input or the context ends.
func newLineReader(ctx context.Context, in io.Reader, format lineFormat,
	size, fromLine int) *lineReader {
	return &lineReader{in: scanLines(ctx, in), format: format, size: size, maxBytes: maxBatchBytes,
		fromLine: fromLine}
}

// lineInput is input that is read line by line, by a goroutine of its own: a read cannot be
// interrupted.
type lineInput struct {
	// lines is closed at the end of the input.
	lines chan []byte
	// err is why the input ended, nil for its end. It is read when lines is closed.
	err error
}

// scanLines starts the goroutine that reads. It ends with the input, or with the first line that is
// not taken before the context ends.
func scanLines(ctx context.Context, in io.Reader) *lineInput {
	l := &lineInput{lines: make(chan []byte)}
	go func() {
		defer close(l.lines)
		s := bufio.NewScanner(in)
		s.Buffer(make([]byte, 64<<10), maxLineBytes)
		for s.Scan() {
			select {
			case l.lines <- bytes.Clone(s.Bytes()):
			case <-ctx.Done():
				l.err = ctx.Err()
				return
			}
		}
		l.err = s.Err()
	}()
	return l
}

// next returns the next batch, and io.EOF after the last. Errors of the input and of its lines name
// the line; that of the context does not. A batch is returned before it is full when its first line
// is older than cli.InputPause, so that the jobs of an input that stays open do not wait for more.
func (r *lineReader) next(ctx context.Context) (jobBatch, error) {
	b := jobBatch{number: r.batches}
	var pause <-chan time.Time
	for batchBytes := 0; len(b.jobs) < r.size && batchBytes < r.maxBytes; {
		select {
		case text, more := <-r.in.lines:
			if !more {
				return r.finalBatch(b)
			}
			before := len(b.jobs)
			if err := r.add(&b, text); err != nil {
				return b, err
			}
			if len(b.jobs) > before {
				batchBytes += len(text)
			}
		case <-pause:
			batchBytes = r.maxBytes
		case <-ctx.Done():
			return b, ctx.Err()
		}
		if pause == nil && len(b.jobs) > 0 {
			timer := time.NewTimer(cli.InputPause)
			defer timer.Stop()
			pause = timer.C
		}
	}
	r.batches++
	return b, nil
}

// add adds the job of a line to a batch. Empty lines and those before fromLine have none; they
// count as lines too, so that an editor shows the same numbers.
func (r *lineReader) add(b *jobBatch, text []byte) error {
	r.line++
	b.bytes += int64(len(text)) + 1
	if r.line < r.fromLine || len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	job, err := r.format.parse(text, r.line)
	if err != nil {
		return fmt.Errorf("%w %d: %w", errLine, r.line, err)
	}
	b.lines = append(b.lines, r.line)
	b.jobs = append(b.jobs, job)
	return nil
}

// finalBatch returns the batch that the input ended in, or io.EOF if there is no job in it.
func (r *lineReader) finalBatch(b jobBatch) (jobBatch, error) {
	switch err := r.in.err; {
	case errors.Is(err, bufio.ErrTooLong):
		return b, fmt.Errorf("%w %d: longer than %d bytes", errLine, r.line+1, maxLineBytes)
	case err != nil:
		return b, fmt.Errorf("after line %d: %w", r.line, err)
	case len(b.jobs) == 0:
		return b, io.EOF
	}
	r.batches++
	return b, nil
}

// parse makes a job of a line. line is its number, from 1 on. The job keeps no part of text. Only
// the form is checked here: limits of sizes and of names are the server's, and its refusal names
// the job.
func (f lineFormat) parse(text []byte, line int) (client.RelaySpec, error) {
	if !utf8.Valid(text) {
		return client.RelaySpec{}, errors.New("not UTF-8")
	}
	if f.queue == "" {
		return parseFullJob(text)
	}
	payload := bytes.Clone(bytes.TrimSpace(text))
	if err := checkSyntax(payload); err != nil {
		return client.RelaySpec{}, err
	}
	id, err := f.id(payload, text, line)
	return client.RelaySpec{Queue: f.queue, ID: id, Timeout: f.timeout, MaxRetries: f.maxRetries,
		Payload: payload}, err
}

// id returns the id of a payload. It depends on nothing but the line: when the command is repeated
// after a failure, each line has the id that it had before, and no job is queued twice.
func (f lineFormat) id(payload, text []byte, line int) (string, error) {
	if f.idFrom == "" {
		h := sha256.New()
		_ = binary.Write(h, binary.BigEndian, uint64(line)) // writing to a hash never fails
		h.Write(text)
		return hex.EncodeToString(h.Sum(nil)[:16]), nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		return "", fmt.Errorf("--id-from %s: the payload is not an object", f.idFrom)
	}
	raw, ok := members[f.idFrom]
	if !ok {
		return "", fmt.Errorf("--id-from %s: the payload has no such member", f.idFrom)
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return "", fmt.Errorf("--id-from %s: %w", f.idFrom, err)
	}
	switch id := value.(type) {
	case json.Number:
		return id.String(), nil
	case string:
		if id != "" {
			return id, nil
		}
	}
	return "", fmt.Errorf("--id-from %s: the member is neither a number nor a string that is "+
		"not empty", f.idFrom)
}

// fullJob is a line that is a Relay job. A job that was claimed from a server can be enqueued
// again: the members that only its answers have are ignored. Any other member is refused, because
// the server would ignore it (RL-015) and most are misspelled.
type fullJob struct {
	Queue      string          `json:"queue"`
	ID         string          `json:"id"`
	Timeout    *json.Number    `json:"timeout"`
	MaxRetries *json.Number    `json:"max_retries"`
	Payload    json.RawMessage `json:"payload"`
	State      json.RawMessage `json:"state"`
	RunAt      *time.Time      `json:"run_at"`
	Callback   string          `json:"callback_url"`

	RunID            json.RawMessage `json:"run_id"`
	RetriesRemaining json.RawMessage `json:"retries_remaining"`
	UpdatedAt        json.RawMessage `json:"updated_at"`
	CreatedAt        json.RawMessage `json:"created_at"`
}

// jobMembers are the members of a job that is submitted.
var jobMembers = []string{"queue", "id", "timeout", "max_retries", "payload", "state", "run_at",
	"callback_url"}

// payloadHint is for lines that are no jobs.
const payloadHint = "; bare payloads need --queue and --timeout"

// jobError is the error of a line that is JSON and no job.
func jobError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("not a job (%s is of type %s)%s", cmp.Or(wrong.Field, "the line"),
			wrong.Value, payloadHint)
	}
	name, isUnknown := cli.UnknownMember(err)
	if !isUnknown {
		return fmt.Errorf("not a job (%w)%s", err, payloadHint)
	}
	meant := payloadHint
	if member, ok := setting.Closest(name, jobMembers); ok {
		meant = fmt.Sprintf("; did you mean %q?", member)
	}
	return fmt.Errorf("unknown member %q%s", name, meant)
}

// parseFullJob makes a job of a line that is a whole job. queue, id, timeout and payload are
// required; a state of null is none.
func parseFullJob(text []byte) (client.RelaySpec, error) {
	var w fullJob
	if err := checkSyntax(text); err != nil {
		return client.RelaySpec{}, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return client.RelaySpec{}, jobError(err)
	}
	switch {
	case w.Queue == "":
		return client.RelaySpec{},
			errors.New("the job has no queue" + payloadHint)
	case w.ID == "":
		return client.RelaySpec{}, errors.New("the job has no id")
	case w.Timeout == nil:
		return client.RelaySpec{}, errors.New("the job has no timeout")
	case w.Payload == nil:
		return client.RelaySpec{}, errors.New("the job has no payload")
	}
	job := client.RelaySpec{Queue: w.Queue, ID: w.ID, Payload: w.Payload, State: w.State,
		CallbackURL: w.Callback}
	if string(w.State) == "null" {
		job.State = nil
	}
	if w.RunAt != nil {
		job.RunAt = *w.RunAt
	}
	seconds, err := integer("timeout", *w.Timeout)
	if err != nil {
		return job, err
	}
	job.Timeout = time.Duration(seconds) * time.Second
	if w.MaxRetries != nil {
		retries, err := integer("max_retries", *w.MaxRetries)
		if err != nil {
			return job, err
		}
		n := int(retries)
		job.MaxRetries = &n
	}
	return job, nil
}

// integer reads a number that is integral however it is written: 30, 3e1 and 30.0 are one number
// (G-RL-26). Which values are allowed is checked by the server.
func integer(member string, n json.Number) (int64, error) {
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
		return 0, fmt.Errorf("%s is %s, and not a whole number of 32 bits", member, n)
	}
	return int64(f), nil
}

// checkSyntax returns an error that says what keeps a text from being JSON.
func checkSyntax(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var value json.RawMessage
	return fmt.Errorf("not JSON: %w", cli.JSONError(json.Unmarshal(text, &value)))
}
