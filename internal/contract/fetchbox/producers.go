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

// Direct producers publish tasks on jobs.tasks themselves, without a submit (FB-095). Such a
// message is only a proposal: it becomes work when its row is committed, and only then is it
// acknowledged (G-FB-22). A message that comes again finds its row and changes nothing.
//
//	message ─► valid? ─► row of the job, unless it exists ─► row of the task ─► ack
//	             │ no                                           │ exists: ack
//	             ▼                                              │ outage: nak, it comes again
//	         dead letter ─► ack
const (
	maxDirectBatch      = 500
	maxDirectDeliveries = 5 // deliveries of a message that fails for a lasting reason
	directFetchTimeout  = 30 * time.Second
	directRetryDelay    = 2 * time.Second
	maxConflictAttempts = 5
)

// proposal is a message of a direct producer and the task in it.
type proposal struct {
	delivery *stream.Delivery
	task     encodedTask
}

// runProducers ingests the tasks that direct producers publish on jobs.tasks, until ctx ends
// (FB-095, G-FB-23). All nodes share one durable consumer, which continues where it was after a
// restart. Consume retries by itself in an outage.
func (f *FetchBox) runProducers(ctx context.Context) {
	c := stream.Consumer{Stream: tasksStream, Subject: tasksSubject, Durable: producersDurable,
		MaxDeliver: maxDirectDeliveries, AckWait: directFetchTimeout, Batch: maxDirectBatch}
	if err := f.Streams.Consume(ctx, c, f.ingestBatch); err != nil && ctx.Err() == nil {
		f.Log.Error("tasks of direct producers are not ingested", telemetry.ErrorMessage, err)
	}
}

// ingestBatch stores the tasks of a batch that have no row yet, those of one job together. A
// message that the outbox has published is acknowledged at once, since its row exists. Groups are
// stored in the order in which their jobs appear, one transaction after the other: a crash leaves
// the rest unacknowledged, and it is delivered again after directFetchTimeout.
func (f *FetchBox) ingestBatch(ctx context.Context, batch []stream.Delivery) {
	groups := map[string][]proposal{}
	var order []string
	for i := range batch {
		d := &batch[i]
		if d.Header(outboxHeader) != "" {
			d.Ack()
			continue
		}
		task, taskErr := f.readDirect(ctx, d.Data)
		if taskErr != nil {
			f.publishInvalid(ctx, d, taskErr)
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

// ingestGroup stores the tasks of one job in one transaction. If one of them exists already, each
// gets a transaction of its own.
func (f *FetchBox) ingestGroup(ctx context.Context, group []proposal) {
	err := f.propose(ctx, group)
	if job.IsKind(err, job.Conflict) && len(group) > 1 {
		for i := range group {
			f.ingestGroup(ctx, group[i:i+1])
		}
		return
	}
	for i := range group {
		f.finishMessage(ctx, group[i].delivery, err)
	}
}

// finishMessage acknowledges a message or asks for it again, by the error of storing its task.
func (f *FetchBox) finishMessage(ctx context.Context, d *stream.Delivery, err error) {
	switch kind := job.KindOf(err); {
	case err == nil, kind == job.Conflict: // the row exists: the message changes nothing
		d.Ack()
	case kind == job.Unavailable, kind == job.ReadOnly, kind == job.Timeout, kind == job.Aborted:
		// An outage loses no task: without an answer the last delivery comes again as well.
		if !d.Last {
			d.Nak(directRetryDelay)
		}
	case d.Last, kind == job.Invalid, kind == job.Malformed, kind == job.TooLarge:
		f.publishUnstored(ctx, d, err)
	default:
		d.Nak(directRetryDelay)
	}
}

// publishUnstored makes a dead letter of a message whose task cannot be stored.
func (f *FetchBox) publishUnstored(ctx context.Context, d *stream.Delivery, err error) {
	f.publishInvalid(ctx, d, &taskError{code: codeMalformed, message: "the task cannot be stored"})
	f.Log.Error("a task of a direct producer could not be stored", telemetry.ErrorMessage, err)
}

// propose stores tasks of one job, and the job if there is none (FB-097). An error of the kind
// Conflict says that one of the tasks exists.
func (f *FetchBox) propose(ctx context.Context, group []proposal) error {
	first := &group[0].task.Task
	keys := f.ids.Next(len(group))
	rows := make([]engine.Submission, 0, len(group))
	for i := range group {
		rows = append(rows, f.taskRow(keys[i], &group[i].task, "", true))
	}
	var err error
	for range maxConflictAttempts {
		if err = f.proposeOnce(ctx, first, rows); !isJobRace(err, first.JobID) {
			return err
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: Name,
		Msg: "the job is created and pruned concurrently", Err: err}
}

// proposeOnce stores the rows of tasks, preceded by that of their job if there is none. The submit
// checks that again: if the job was created or pruned in between, the error is a job race and
// nothing is stored.
func (f *FetchBox) proposeOnce(ctx context.Context, first *handler.Task,
	rows []engine.Submission) error {
	exists, err := f.Engine.Exists(ctx, engineJobID(first.JobID))
	if err != nil {
		return err
	}
	if !exists {
		row, err := f.directJob(ctx, first)
		if err != nil {
			return err
		}
		rows = append([]engine.Submission{row}, rows...)
	}
	_, err = f.Engine.Submit(ctx, engine.Unique, rows)
	return err
}

// isJobRace reports whether a job was created or pruned between the check for it and the submit.
func isJobRace(err error, jobID string) bool {
	var e *job.Error
	if !errors.As(err, &e) || e.ID != engineJobID(jobID) {
		return false
	}
	return e.Kind == job.Conflict || e.Kind == job.NotFound
}

// directJob is the row of a job without a submit. Its first task gives its details. The first entry
// of its log is written before, as with a submit. Its details have no number of resources, since it
// is not known how many tasks will come; operators see the tasks that have come so far.
func (f *FetchBox) directJob(ctx context.Context, t *handler.Task) (engine.Submission, error) {
	j := handler.Job{ID: t.JobID, Type: t.JobType, Tenant: t.Tenant, ManifestKey: t.ManifestKey,
		TraceID: t.TraceID}
	offset, err := f.openLog(ctx, j, 0, f.Now())
	if err != nil {
		return engine.Submission{}, err
	}
	details := jobDetails{manifestKey: t.ManifestKey, tenant: t.Tenant, cursor: offset,
		traceID: t.TraceID}
	return f.jobRow(t.JobID, t.JobType, &details, ""), nil
}

// readDirect reads the message of a direct producer. It must name its job, its resource and a URL;
// the worker finds out whether the rest is valid (FB-096). It returns the task with the defaults of
// its job type, or the error for its dead letter. A task that its handler refuses is stored as it
// is: its attempt fails with the handler's reason, where operators see it with its job.
func (f *FetchBox) readDirect(ctx context.Context, data []byte) (encodedTask, *taskError) {
	refuse := func(msg string) (encodedTask, *taskError) {
		return encodedTask{}, &taskError{code: codeMalformed, message: msg}
	}
	if err := strictjson.Check(data); err != nil {
		return refuse("the message is not JSON: " + err.Error())
	}
	t, err := decodeTask(data)
	if err != nil {
		return refuse("the message is not a task: " + err.Error())
	}
	id, ok := uuids.Parse(t.JobID)
	if !ok {
		return refuse("job_id must be a UUID")
	}
	t.JobID, t.Attempt = id, max(1, t.Attempt)
	if n := utf8.RuneCountInString(t.ResourceID); n < 1 || n > maxIDChars {
		return refuse("resource_id must have 1 to 128 characters")
	}
	if t.URL == "" {
		return refuse("url is missing")
	}
	registered := f.types[t.JobType]
	if registered == nil {
		return encodedTask{}, &taskError{code: codeUnknownType,
			message: "the job type " + strconv.Quote(t.JobType) + " is not registered"}
	}
	filled, err := registered.adjust(ctx, t)
	if err != nil {
		filled = t // its attempt fails with the reason
	}
	message := encodeTask(&filled)
	if len(message) > maxTaskMessage {
		return refuse("the task is larger than " + strconv.Itoa(maxTaskMessage) + " bytes")
	}
	return encodedTask{filled, message}, nil
}

// maxInvalidMessage bounds how much of a message that is not JSON its dead letter holds, in bytes.
const maxInvalidMessage = 64 << 10

// publishInvalid makes a dead letter of a message that is no task (FB-099). The message is
// acknowledged when its dead letter is stored; until then it comes again.
func (f *FetchBox) publishInvalid(ctx context.Context, d *stream.Delivery, taskErr *taskError) {
	o := strictjson.NewObject(make([]byte, 0, 256+len(d.Data)))
	appendDeadLetter(&o, invalidTask(d.Data), taskErr, 0, d.Time)
	_, err := f.publish(ctx, []stream.Message{{Subject: dlqSubject,
		ID: "direct/" + strconv.FormatUint(d.Offset, 10), Data: o.End()}})
	if err != nil {
		return
	}
	f.metrics.deadLetters.Inc()
	f.Log.Warn("a message on "+tasksSubject+" is not a task and became a dead letter",
		telemetry.ErrorCode, taskErr.code, telemetry.ErrorMessage, taskErr.message)
	d.Ack()
}

// invalidTask is a message as a dead letter holds it: as it is if it is JSON of acceptable size,
// otherwise its beginning as a JSON string.
func invalidTask(data []byte) []byte {
	if len(data) <= maxTaskMessage && strictjson.IsValid(data) {
		return data
	}
	beginning := string(data[:min(len(data), maxInvalidMessage)])
	text, _ := json.Marshal(strings.ToValidUTF8(beginning, "\uFFFD")) // a string: it cannot fail
	return text
}
