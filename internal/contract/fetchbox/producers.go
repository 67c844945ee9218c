package fetchbox

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// How tasks of direct producers are taken in.
const (
	maxDirectBatch     = 500
	maxDirectTries     = 5 // of one that fails for a reason that does not pass
	directFetchTimeout = 30 * time.Second
	directRetryDelay   = 2 * time.Second
	maxConflictTries   = 5
)

// proposal is a task that somebody else published. The message is a proposal: it is work when its
// row exists (G-FB-22).
type proposal struct {
	delivery *stream.Delivery
	task     handler.Task
}

// runProducers takes in what others publish on jobs.tasks, until ctx ends (FB-095, G-FB-23).
func (f *FetchBox) runProducers(ctx context.Context) {
	c := stream.Consumer{Stream: tasksStream, Subject: tasksSubject, Durable: producersDurable,
		MaxDeliver: maxDirectTries, AckWait: directFetchTimeout, Batch: maxDirectBatch}
	if err := f.Streams.Consume(ctx, c, f.ingestBatch); err != nil && ctx.Err() == nil {
		f.Log.Error("tasks of direct producers are not taken in", telemetry.ErrorMessage, err)
	}
}

// ingestBatch stores the tasks of a batch that have no row yet, those of one job together.
func (f *FetchBox) ingestBatch(ctx context.Context, batch []stream.Delivery) {
	groups := map[string][]proposal{}
	var order []string
	for i := range batch {
		d := &batch[i]
		if d.Header(outboxHeader) != "" {
			d.Ack()
			continue
		}
		task, why := f.readDirect(ctx, d.Data)
		if why != (failure{}) {
			f.publishInvalid(ctx, d, why)
			continue
		}
		if groups[task.JobID] == nil {
			order = append(order, task.JobID)
		}
		groups[task.JobID] = append(groups[task.JobID], proposal{d, task})
	}
	for _, id := range order {
		f.ingestGroup(ctx, groups[id])
	}
}

// ingestGroup stores the tasks of one job. Where one of them exists, each is tried by itself.
func (f *FetchBox) ingestGroup(ctx context.Context, group []proposal) {
	err := f.propose(ctx, group)
	if job.IsKind(err, job.Conflict) && len(group) > 1 {
		for i := range group {
			f.ingestGroup(ctx, group[i:i+1])
		}
		return
	}
	for i := range group {
		f.settleMessage(ctx, group[i].delivery, err)
	}
}

// settleMessage says what becomes of a message.
func (f *FetchBox) settleMessage(ctx context.Context, d *stream.Delivery, err error) {
	switch k := job.KindOf(err); {
	case err == nil || k == job.Conflict: // its row was there: the message changes nothing
		d.Ack()
	case k == job.Unavailable || k == job.ReadOnly || k == job.Timeout || k == job.Aborted:
		if !d.Last { // else it comes again when its time is over: what passes loses no task
			d.Nak(directRetryDelay)
		}
	case d.Last || k == job.Invalid || k == job.Malformed || k == job.TooLarge:
		f.publishInvalid(ctx, d, failure{codeMalformed, "the task cannot be stored"})
		f.Log.Error("a task of a direct producer could not be taken in", telemetry.ErrorMessage,
			err)
	default:
		d.Nak(directRetryDelay)
	}
}

// propose stores tasks of one job, and the job where there is none (FB-097). Conflict says that one
// of them exists.
func (f *FetchBox) propose(ctx context.Context, group []proposal) error {
	first := &group[0].task
	keys := f.ids.Next(len(group))
	rows := make([]engine.Submission, 0, 1+len(group))
	for i := range group {
		rows = append(rows, f.taskRow(keys[i], &group[i].task, "", true))
	}
	var err error
	for range maxConflictTries {
		var known bool
		if known, err = f.engine.Exists(ctx, engineJobID(first.JobID)); err != nil {
			return err
		}
		batch := rows
		if !known {
			row, err := f.directJob(ctx, first)
			if err != nil {
				return err
			}
			batch = append([]engine.Submission{row}, rows...)
		}
		_, err = f.engine.Submit(ctx, engine.Unique, batch)
		var e *job.Error
		raced := errors.As(err, &e) && e.ID == engineJobID(first.JobID) &&
			(e.Kind == job.Conflict || e.Kind == job.NotFound)
		if !raced {
			return err
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: Name, Msg: "the job comes and goes", Err: err}
}

// directJob is the ledger's entry of a job that nobody submitted. What is known of it is what its
// first task says.
func (f *FetchBox) directJob(ctx context.Context, t *handler.Task) (engine.Submission, error) {
	j := handler.Job{ID: t.JobID, Type: t.JobType, Tenant: t.Tenant, ManifestKey: t.ManifestKey,
		TraceID: t.TraceID}
	offset, err := f.openLog(ctx, j, 0, f.Now())
	if err != nil {
		return engine.Submission{}, err
	}
	e := jobDetails{manifestKey: t.ManifestKey, tenant: t.Tenant, cursor: offset,
		traceID: t.TraceID}
	return f.jobRow(t.JobID, t.JobType, job.IdentityHash{}, &e, ""), nil
}

// readDirect reads the message of a direct producer. It must say what it is about; whether the rest
// is of use the worker finds out (FB-096).
func (f *FetchBox) readDirect(ctx context.Context, data []byte) (t handler.Task, why failure) {
	malformed := func(msg string) (handler.Task, failure) {
		return handler.Task{}, failure{codeMalformed, msg}
	}
	if err := strictjson.Check(data); err != nil {
		return malformed("the message is not JSON: " + err.Error())
	}
	t, err := decodeTask(data)
	if err != nil {
		return malformed("the message is no task: " + err.Error())
	}
	id, ok := uuids.Parse(t.JobID)
	if !ok {
		return malformed("job_id must be a UUID")
	}
	t.JobID, t.Attempt = id, max(1, t.Attempt)
	switch n := utf8.RuneCountInString(t.ResourceID); {
	case n < 1 || n > maxIDChars:
		return malformed("resource_id must have 1 to 128 characters")
	case t.URL == "":
		return malformed("url is missing")
	}
	registered := f.types[t.JobType]
	if registered == nil {
		return t, failure{codeUnknownType,
			"the job type " + strconv.Quote(t.JobType) + " is not registered"}
	}
	// else the worker says what is wrong
	if whole, err := registered.fillDefaults(ctx, t); err == nil {
		t = whole
	}
	if len(encodeTask(&t)) > maxTaskMessage {
		return malformed("the task is larger than " + strconv.Itoa(maxTaskMessage) + " bytes")
	}
	return t, failure{}
}

// maxInvalidMessage is how much of a message that is no JSON a dead letter keeps.
const maxInvalidMessage = 64 << 10

// publishInvalid makes a dead letter of a message that is no task (FB-099).
func (f *FetchBox) publishInvalid(ctx context.Context, d *stream.Delivery, why failure) {
	task := d.Data
	if strictjson.Check(task) != nil || len(task) > maxTaskMessage {
		task, _ = json.Marshal(strings.ToValidUTF8(string(task[:min(len(task), maxInvalidMessage)]),
			"\uFFFD"))
	}
	o := strictjson.NewObject(make([]byte, 0, 256+len(task)))
	appendDeadLetter(&o, task, why, 0, d.Time)
	id := "direct/" + strconv.FormatUint(d.Offset, 10)
	if _, err := f.publish(ctx, []stream.Message{{Subject: dlqSubject, ID: id,
		Data: o.End()}}); err != nil {
		return // it comes again when its time is over
	}
	f.metrics.deadLetters.Inc()
	f.Log.Warn("a message on "+tasksSubject+" is no task and became a dead letter",
		telemetry.ErrorCode, why.code, telemetry.ErrorMessage, why.message)
	d.Ack()
}
