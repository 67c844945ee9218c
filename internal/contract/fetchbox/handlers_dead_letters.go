package fetchbox

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/uuids"
)

// deadLetterPages are the pages of dead letters, whose cursor is the offset of the last one.
var deadLetterPages = httpapi.Pages[uint64]{DefaultLimit: defaultPage, MaxLimit: maxPage,
	LimitText: limitText, Cursor: httpapi.Cursor[uint64]{
		Format: func(offset uint64) string { return strconv.FormatUint(offset, 10) },
		Parse: func(text string) (uint64, bool) {
			offset, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return 0, false
			}
			return offset, offset > 0
		},
	}}

// GET /operators/dlq: the dead letters, the newest first. They are read from their stream and not
// from the ledger, so the list also has the messages that were no task (FB-099), and none that is
// older than the retention of the stream (FB-092).
func (f *FetchBox) listDeadLetters(c *httpapi.Call) error {
	limit, before, err := deadLetterPages.Read(c)
	if err != nil {
		return err
	}
	deadLetters, err := f.Streams.Newest(c.Context(), dlqStream, dlqSubject, before, limit+1)
	if err != nil {
		return err
	}
	replays, err := f.replaysOf(c.Context(), deadLetters)
	if err != nil {
		return err
	}
	return httpapi.SendPage(c, deadLetterPages.Cursor, limit, deadLetters,
		func(l stream.Entry) uint64 { return l.Offset },
		func(o *strictjson.Object, l stream.Entry) {
			for name, value := range strictjson.Members(l.Data) {
				o.Raw(string(name), value)
			}
			o.Int("offset", int64(l.Offset))
			o.Time("replayed_at", replays[l.Offset].at)
			o.Optional("replayed_as", replays[l.Offset].as)
		})
}

// replayOf is when a dead letter was replayed, and the id of the resource, whose task is then ready
// again.
type replayOf struct {
	at time.Time
	as string
}

// replaysOf returns the replays of dead letters, by their offsets. The ledger has a dead letter of
// each time that a task was given up, at the time that the message names.
func (f *FetchBox) replaysOf(ctx context.Context,
	entries []stream.Entry) (map[uint64]replayOf, error) {
	var aliases []job.IdentityHash
	for _, e := range entries {
		if jobID, resourceID, ok := deadLetterTask(e.Data); ok {
			aliases = append(aliases, taskAlias(jobID, resourceID))
		}
	}
	tasks, err := f.Engine.GetByAliases(ctx, aliases)
	if err != nil {
		return nil, err
	}
	seqs := make([]int64, len(tasks))
	for i, t := range tasks {
		seqs[i] = t.Seq
	}
	deadLetters, err := f.Engine.DeadLettersOf(ctx, seqs)
	if err != nil {
		return nil, err
	}
	replays := map[uint64]replayOf{}
	for _, e := range entries {
		jobID, resourceID, ok := deadLetterTask(e.Data)
		at := slices.IndexFunc(tasks, func(t *job.Job) bool {
			return ok && t.Alias == taskAlias(jobID, resourceID)
		})
		if at < 0 {
			continue
		}
		for _, l := range deadLetters[tasks[at].Seq] {
			if !l.IsOpen() && l.CreatedAt.Equal(failedAt(e.Data)) {
				replays[e.Offset] = replayOf{l.ReplayedAt, resourceID}
			}
		}
	}
	return replays, nil
}

// failedAt returns when the task of a dead letter was given up; zero if that cannot be read.
func failedAt(deadLetter []byte) (at time.Time) {
	for name, value := range strictjson.Members(deadLetter) {
		if string(name) != "failed_at" {
			continue
		}
		text, err := strictjson.String(value)
		if err != nil {
			return at
		}
		at, _ = strictjson.ParseTime(text) // zero with an error
	}
	return at
}

// POST /operators/dlq/{offset}/replay: makes the task of a dead letter ready again (G-FB-37). The
// dead letter stays in its stream. A repeated replay is a conflict, unless the task is dead once
// more.
func (f *FetchBox) replayDeadLetter(c *httpapi.Call) error {
	ctx := c.Context()
	offset, err := strconv.ParseUint(c.PathValue("offset"), 10, 64)
	if err != nil {
		return notFound("dead letter")
	}
	deadLetter, err := f.Streams.Get(ctx, dlqStream, offset)
	if job.IsKind(err, job.NotFound) {
		return notFound("dead letter")
	}
	if err != nil {
		return err
	}
	jobID, resourceID, ok := deadLetterTask(deadLetter.Data)
	if !ok {
		return conflict("the dead letter is not that of a stored task: its producer must publish " +
			"a valid message instead")
	}
	task, err := f.retryDead(ctx, jobID, resourceID)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	o.Text("job_id", jobID)
	o.Text("resource_id", resourceID)
	o.Text("status", string(task.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// deadLetterTask returns the task that a dead letter is about; ok is false for a message that was
// no valid task.
func deadLetterTask(deadLetter []byte) (jobID, resourceID string, ok bool) {
	var task []byte
	for name, value := range strictjson.Members(deadLetter) {
		if string(name) == "task" {
			task = value
		}
	}
	for name, value := range strictjson.Members(task) {
		switch string(name) {
		case "job_id":
			text, _ := strictjson.String(value)
			jobID, ok = uuids.Parse(text)
		case "resource_id":
			resourceID, _ = strictjson.String(value)
		}
	}
	return jobID, resourceID, ok && resourceID != ""
}

// retryDead makes a dead task ready with the attempts and delays of a new one. The state of its job
// follows in the same transaction. Of two replays at the same time one gets a conflict.
func (f *FetchBox) retryDead(ctx context.Context, jobID, resourceID string) (*job.Job, error) {
	task, err := f.Engine.GetByAlias(ctx, taskAlias(jobID, resourceID))
	if job.IsKind(err, job.NotFound) {
		return nil, conflict("the ledger does not hold the task: it was pruned or never stored")
	}
	if err != nil {
		return nil, err
	}
	retried, err := f.Engine.Change(ctx, task.ID, job.Retried, f.prepareRetry)
	if job.IsKind(err, job.Conflict) {
		return nil, conflict("the task is not dead: it is %s", task.State)
	}
	return retried, err
}

// prepareRetry gives a dead task the attempts and delays of a new one, beginning now.
func (f *FetchBox) prepareRetry(j *job.Job, now time.Time) error {
	f.allowAttempts(j)
	j.DueAt = now
	return nil
}
