package relay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// The documented limits.
const (
	maxName    = 1024 // characters of queue and id
	maxTimeout = math.MaxInt32
	maxRetries = math.MaxInt16
)

// decoders read the members whose form differs between the versions.
var decoders = [...]struct {
	timeout     func(raw []byte) (time.Duration, error)
	maxAttempts func(raw []byte) (int, error)
	runAt       func(raw []byte) (time.Time, error)
	callbackURL func(raw []byte) (string, error)
}{
	v2: {readTimeout, readMaxAttempts, readRunAt, readCallbackURL},
	v1: {readTimeoutV1, readMaxAttemptsV1, readRunAtV1, ignoreCallbackURL},
}

// wireJob holds the members of a submitted job as they were sent; a missing one is nil. Of a
// repeated member the last one counts (G-RL-26), and unknown ones are ignored (RL-015).
type wireJob struct {
	queue, id, timeout, maxRetries, payload, state, runAt, callbackURL []byte
}

// read takes the members of a checked object. Their values are parts of raw and keep it in memory.
func (w *wireJob) read(raw []byte) {
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "queue":
			w.queue = value
		case "id":
			w.id = value
		case "timeout":
			w.timeout = value
		case "max_retries":
			w.maxRetries = value
		case "payload":
			w.payload = value
		case "state":
			w.state = value
		case "run_at":
			w.runAt = value
		case "callback_url":
			w.callbackURL = value
		}
	}
}

// readJobs reads a body that is an array of jobs. Each job carries the trace of the request, to
// which the spans of its attempts are added later.
func (r *Relay) readJobs(c *httpapi.Call, v version) ([]engine.Submission, error) {
	body, err := c.JSONBody()
	if err != nil {
		return nil, err
	}
	batch, err := decodeJobs(body, v)
	if err != nil {
		return nil, err
	}
	trace := telemetry.Carrier(c.Context())
	for i := range batch {
		batch[i].Job.Trace = trace
		if err := r.encodeCallback(&batch[i].Job); err != nil {
			return nil, indexError(err, "job", i)
		}
	}
	return batch, nil
}

// readJob reads a body that is one job, as version 1 sends it to reschedule.
func readJob(c *httpapi.Call, v version) (s engine.Submission, err error) {
	body, err := c.JSONBody()
	if err != nil {
		return s, err
	}
	if err := strictjson.Check(body); err != nil {
		return s, malformed("the body is not JSON: %v", err)
	}
	err = decodeJob(body, v, "", &s.Job)
	s.Job.Trace = telemetry.Carrier(c.Context())
	return s, err
}

// maxBatch is how many jobs one request may submit, and how many runs it may name. A batch is one
// transaction: the limit keeps it short and within memory, so that it does not hold up other
// requests.
const maxBatch = 50_000

// decodeJobs reads an array of jobs.
func decodeJobs(body []byte, v version) ([]engine.Submission, error) {
	// The capacity is a guess that saves copies of a growing batch. It is bounded, since a body
	// may hold fewer jobs than its length suggests.
	const smallJob = 128 // bytes
	batch := make([]engine.Submission, 0, min(1+len(body)/smallJob, 1000))
	queue := ""
	err := decodeBatch(body, "job", func(raw []byte) error {
		batch = append(batch, engine.Submission{})
		j := &batch[len(batch)-1].Job
		err := decodeJob(raw, v, queue, j)
		queue = j.Queue
		return err
	})
	if err != nil {
		return nil, err
	}
	return batch, nil
}

// decodeBatch calls decode for each entry of a body that is an array. One malformed entry makes the
// whole body malformed, even if an earlier one only exceeds a limit (RL-026, RL-028). noun is what
// an entry is called in errors.
func decodeBatch(body []byte, noun string, decode func(raw []byte) error) error {
	if err := strictjson.Check(body); err != nil {
		return malformed("the body is not JSON: %v", err)
	}
	if kind := strictjson.KindOf(body); kind != strictjson.KindArray {
		return malformed("the body is of type %s and must be an array of %ss", kind, noun)
	}
	var limitErr *job.Error
	for i, raw := range strictjson.Elements(body) {
		if i == maxBatch {
			return tooLarge("more than %d %ss in one request", maxBatch, noun)
		}
		if err := decode(raw); err != nil {
			indexed := indexError(err, noun, i)
			if indexed.Kind == job.Malformed {
				return indexed
			}
			limitErr = cmp.Or(limitErr, indexed)
		}
	}
	if limitErr != nil {
		return limitErr
	}
	return nil
}

// indexError returns the error of an entry with its index in the batch, counted from 0. The kind
// stays, and with it the status of the answer.
func indexError(err error, noun string, i int) *job.Error {
	msg := job.KindOf(err).String()
	var e *job.Error
	if errors.As(err, &e) {
		msg = cmp.Or(e.Msg, msg)
	}
	return &job.Error{Kind: job.KindOf(err), Op: "relay.decode",
		Msg: fmt.Sprintf("%s %d: %s", noun, i, msg)}
}

// decodeJob reads one job of a text that is valid JSON. A missing or mistyped member counts before
// a value beyond a limit, whatever their order (gravest). A run_at in the past is kept: it puts
// the job before younger ones (RL-041). A state of null is none. With an error j is unchanged.
// lastQueue is the queue of the job before it in the batch, see readName.
func decodeJob(raw []byte, v version, lastQueue string, j *job.Job) error {
	if kind := strictjson.KindOf(raw); kind != strictjson.KindObject {
		return malformed("a job must be an object and this is of type %s", kind)
	}
	var w wireJob
	w.read(raw)
	if w.payload == nil && v == v1 {
		w.payload = null
	}
	if w.payload == nil {
		return malformed("payload is missing")
	}
	queue, queueErr := readName("queue", w.queue, lastQueue)
	id, idErr := readName("id", w.id, "")
	lease, leaseErr := decoders[v].timeout(w.timeout)
	limit, limitErr := decoders[v].maxAttempts(w.maxRetries)
	at, atErr := decoders[v].runAt(w.runAt)
	callback, callbackErr := decoders[v].callbackURL(w.callbackURL)
	if err := gravest(queueErr, idErr, leaseErr, limitErr, atErr, callbackErr); err != nil {
		return err
	}
	j.ID, j.Queue = job.ID{JobType: Name, Scope: queue, Key: id}, queue
	j.Lease, j.MaxAttempts = lease, limit
	j.OrderTime, j.DueAt = at, at
	j.Payload, j.Callback = w.payload, callback
	if w.state != nil && !strictjson.IsNull(w.state) {
		j.Progress = w.state
	}
	return nil
}

// gravest returns the first Malformed error or, if there is none, the first error.
func gravest(errs ...error) error {
	var first error
	for _, err := range errs {
		if job.IsKind(err, job.Malformed) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// readName reads a queue or id (RL-002, RL-003, G-RL-14, G-RL-27). U+0000 and lone surrogates are
// invalid, as no database stores them. A name equal to last, a valid name or "", is returned as
// last: the entries of a batch share one copy of their queue.
func readName(what string, raw []byte, last string) (string, error) {
	if raw == nil {
		return "", malformed("%s is missing", what)
	}
	text, err := strictjson.Bytes(raw)
	switch {
	case errors.Is(err, strictjson.ErrKind):
		return "", malformed("%s must be a string", what)
	case err != nil:
		return "", invalid("%s: %v", what, err)
	case len(text) == 0:
		return "", invalid("%s is empty", what)
	case string(text) == last:
		return last, nil
	case len(text) > maxName && utf8.RuneCount(text) > maxName:
		return "", invalid("%s is longer than %d characters", what, maxName)
	}
	return string(text), nil
}

// readTimeout reads the lease of a job's attempts (RL-004). An attempt with a timeout of 0 expires
// with the next check for expired leases (RL-090).
func readTimeout(raw []byte) (time.Duration, error) {
	if raw == nil {
		return 0, malformed("timeout is missing")
	}
	seconds, err := readInteger("timeout", raw, 0, maxTimeout)
	return time.Duration(seconds) * time.Second, err
}

// readMaxAttempts reads max_retries as a number of attempts, 0 for no limit (RL-005). A job has one
// attempt more than it has retries (RL-087).
func readMaxAttempts(raw []byte) (int, error) {
	if raw == nil || strictjson.IsNull(raw) {
		return 0, nil
	}
	retries, err := readInteger("max_retries", raw, 0, maxRetries)
	return int(retries) + 1, err
}

// readInteger reads an integer within limits. Anything but an integer is malformed, one beyond the
// limits invalid, however many digits it has.
func readInteger(what string, raw []byte, minValue, maxValue int64) (int64, error) {
	n, err := readClampedInteger(what, raw)
	if err != nil {
		return 0, err
	}
	if n < minValue || n > maxValue {
		return 0, invalid("%s must be from %d to %d", what, minValue, maxValue)
	}
	return n, nil
}

// readRunAt reads when a job is due; the zero time stands for now (RL-011). A run_at that is the
// zero time itself becomes the microsecond after it. Fractions of a second are kept to the
// microsecond (RL-014).
func readRunAt(raw []byte) (time.Time, error) {
	if raw == nil || strictjson.IsNull(raw) {
		return time.Time{}, nil
	}
	at, err := strictjson.Time(raw)
	if err != nil {
		return at, malformed("run_at must be a time in RFC 3339 form")
	}
	if at.IsZero() {
		at = at.Add(time.Microsecond)
	}
	return at, nil
}
