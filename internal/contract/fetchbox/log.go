package fetchbox

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Every change of a task has an entry in the log of its job, as have the changes of the job that
// jobLogEntry lists (FB-064). An entry is a part of the outbox message that is written in the
// transaction of the change. So the log has no entry for a change that was rolled back, and it has
// that of a committed one as soon as the outbox is published. The first entry is an exception:
// openLog writes it before the job exists.

// Levels of log entries.
const (
	levelInfo  = "info"
	levelWarn  = "warn"
	levelError = "error"
)

// logEntry is one line of a job's log (FB-064).
type logEntry struct {
	jobID, resourceID, traceID string
	level, message             string
	at                         time.Time
}

// append writes the members of the entry; fields writes those of its member "fields". An entry
// about the job itself has no resource.
func (l *logEntry) append(o *strictjson.Object, fields func(*strictjson.Object)) {
	o.Text("job_id", l.jobID)
	o.Optional("resource_id", l.resourceID)
	o.Text("level", l.level)
	o.Text("message", l.message)
	o.Object("fields", fields)
	o.Int("timestamp_ms", l.at.UnixMilli())
	o.Optional("trace_id", l.traceID)
}

// jobLogEntry is the entry for a change of a job; ok is false for a change that has none. The
// first entry of a log is written before the job exists, see openLog.
func jobLogEntry(j *job.Job, ev job.Event, traceID string) (l logEntry, ok bool) {
	l = logEntry{jobID: j.ID.Key, traceID: traceID, level: levelInfo, at: ev.At}
	switch ev.Cause {
	case job.Started:
		l.message = "the first task started"
	case job.Satisfied:
		l.message = "all tasks have finished"
	case job.Retried:
		l.message = "tasks are open again"
	case job.Succeeded, job.FailedForGood:
		l.message = "the job is " + string(ev.Next)
		_, hasError := decodeTaskError(j.Failure)
		if hasError && ev.Prev == finalizing && ev.Reason != "" {
			l.level = levelError
			l.message += ", but the Finalize of its handler failed"
		}
	}
	return l, l.message != ""
}

// taskLogText is what the log of a job says about each change of a task.
var taskLogText = map[job.Cause]struct{ level, message string }{
	job.Submitted:      {levelInfo, "the task is queued"},
	job.Claimed:        {levelInfo, "the download begins"},
	job.Succeeded:      {levelInfo, "the resource is stored"},
	job.Failed:         {levelWarn, "the attempt failed"},
	job.FailedForGood:  {levelError, "the task failed and is not retried"},
	job.Expired:        {levelWarn, "the worker was lost"},
	job.ExpiredForGood: {levelError, "the worker was lost, and the task is not retried"},
	job.Released:       {levelInfo, "the worker released the task"},
	job.Retried:        {levelInfo, "the task is replayed"},
	job.Canceled:       {levelError, "the task is canceled and not retried"},
}

// appendTaskLog writes the log entry for a change of a task. An entry for a failure has its code
// and message, one for a task that waits for its next attempt the time of that.
func appendTaskLog(o *strictjson.Object, j *job.Job, l *taskLabel, ev job.Event) {
	text := taskLogText[ev.Cause]
	e := logEntry{jobID: l.jobID, resourceID: l.resourceID, traceID: l.traceID,
		level: text.level, message: text.message, at: ev.At}
	e.append(o, func(o *strictjson.Object) {
		o.Int("attempt", int64(attemptNumber(j, ev.Cause, ev.Prev)))
		switch ev.Cause {
		case job.Claimed:
			o.Text("worker", j.Worker)
		case job.Succeeded:
			appendResult(o, j.Result)
		case job.Failed, job.FailedForGood, job.Expired, job.ExpiredForGood, job.Canceled:
			failure, _ := decodeTaskError(j.Failure)
			failure.append(o)
		}
		if j.State == waiting && j.Phase == job.Waiting {
			o.Time("next_try_at", j.DueAt)
		}
	})
}

// appendResult writes the result of a task if it is an object of reasonable size. A remote worker
// may have formatted its result; an entry of a log is one line.
func appendResult(o *strictjson.Object, result []byte) {
	if strictjson.KindOf(result) != strictjson.KindObject || len(result) > maxTaskMessage {
		return
	}
	var line bytes.Buffer
	if json.Compact(&line, result) != nil {
		return
	}
	o.Raw("result", line.Bytes())
}

// attemptNumber is the number of the attempt that a change of a task from a state belongs to.
// Attempts that were released, because the host asked for a pause or the node stopped, and those
// whose worker was lost do not count (G-FB-43).
func attemptNumber(j *job.Job, cause job.Cause, from job.State) int {
	switch {
	case cause == job.Failed:
		return j.FailedAttempts // this failure is counted already
	case cause == job.Canceled && from == waiting:
		return j.FailedAttempts // there was no attempt to end
	}
	return min(j.FailedAttempts+1, j.MaxAttempts)
}
