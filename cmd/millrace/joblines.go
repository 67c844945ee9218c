package main

import (
	"bufio"
	"bytes"
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
)

// maxLine is the server's own default limit for a body.
const maxLine = 64 << 20

// lineFormat says what a line of JSON stands for: a whole Relay job or, with a queue, a bare
// payload.
type lineFormat struct {
	queue   string
	timeout time.Duration
	// member of the payload that is the id; empty for an id made of line and position
	idFrom     string
	maxRetries *int
}

// jobBatch is what one request carries.
type jobBatch struct {
	number int // from 0 on, without gaps
	lines  []int
	jobs   []client.RelaySpec
	bytes  int64 // of the input up to its end, since the batch before
}

// lineReader cuts JSON lines into batches.
type lineReader struct {
	in       *lineInput
	format   lineFormat
	size     int // jobs of a batch
	maxBytes int
	fromLine int

	line    int
	batches int
}

// newLineReader reads until the input or the context ends.
func newLineReader(ctx context.Context, in io.Reader, format lineFormat,
	size, fromLine int) *lineReader {
	return &lineReader{in: scanLines(ctx, in), format: format, size: size, maxBytes: 8 << 20,
		fromLine: fromLine}
}

// next returns the next batch, io.EOF after the last. Other errors name their line, but for the
// one of the context. A batch is returned before it is full when its first line is older than
// inputPause.
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
			timer := time.NewTimer(inputPause)
			defer timer.Stop()
			pause = timer.C
		}
	}
	r.batches++
	return b, nil
}

// Add puts a line into a batch, if there is a job in it.
func (r *lineReader) add(b *jobBatch, text []byte) error {
	r.line++
	b.bytes += int64(len(text)) + 1
	if r.line < r.fromLine || len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	job, err := r.format.parse(text, r.line)
	if err != nil {
		return fmt.Errorf("line %d: %w", r.line, err)
	}
	b.lines = append(b.lines, r.line)
	b.jobs = append(b.jobs, job)
	return nil
}

// last returns the batch that the end of the input has left.
func (r *lineReader) finalBatch(b jobBatch) (jobBatch, error) {
	switch err := r.in.err; {
	case errors.Is(err, bufio.ErrTooLong):
		return b, fmt.Errorf("line %d: longer than %d bytes", r.line+1, maxLine)
	case err != nil:
		return b, fmt.Errorf("after line %d: %w", r.line, err)
	case len(b.jobs) == 0:
		return b, io.EOF
	}
	r.batches++
	return b, nil
}

// parse makes a job of a line; it keeps nothing of text.
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

// id names a bare payload so that the same line of the same input always gets the same name: a run
// that is repeated after a failure meets its own jobs.
func (f lineFormat) id(payload, text []byte, line int) (string, error) {
	if f.idFrom == "" {
		h := sha256.New()
		_ = binary.Write(h, binary.BigEndian, uint64(line)) // a hash takes everything
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
	return "", fmt.Errorf("--id-from %s: the member is neither a number nor a string with "+
		"something in it", f.idFrom)
}

// fullJob is a line that is a Relay job. Members it does not name are left out, as the server would
// (RL-015), so that what `next` answered can be enqueued again.
type fullJob struct {
	Queue      string          `json:"queue"`
	ID         string          `json:"id"`
	Timeout    *json.Number    `json:"timeout"`
	MaxRetries *json.Number    `json:"max_retries"`
	Payload    json.RawMessage `json:"payload"`
	State      json.RawMessage `json:"state"`
	RunAt      *time.Time      `json:"run_at"`
}

func parseFullJob(text []byte) (client.RelaySpec, error) {
	var w fullJob
	if err := checkSyntax(text); err != nil {
		return client.RelaySpec{}, err
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return client.RelaySpec{},
			fmt.Errorf("not a job (%w); bare payloads need --queue and --timeout", err)
	}
	switch {
	case w.Queue == "":
		return client.RelaySpec{},
			errors.New("the job has no queue; bare payloads need --queue and --timeout")
	case w.ID == "":
		return client.RelaySpec{}, errors.New("the job has no id")
	case w.Timeout == nil:
		return client.RelaySpec{}, errors.New("the job has no timeout")
	case w.Payload == nil:
		return client.RelaySpec{}, errors.New("the job has no payload")
	}
	job := client.RelaySpec{Queue: w.Queue, ID: w.ID, Payload: w.Payload, State: w.State}
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

// integer reads a number that is integral however it is written (G-RL-26); its bounds are the
// server's to judge.
func integer(member string, n json.Number) (int64, error) {
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
		return 0, fmt.Errorf("%s is %s, and not a whole number of 32 bits", member, n)
	}
	return int64(f), nil
}

func checkSyntax(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var value json.RawMessage
	return fmt.Errorf("not JSON: %w", json.Unmarshal(text, &value))
}
