package fetchbox

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

// The streams and their subjects (G-FB-36).
const (
	tasksStream  = "JOBS_TASKS"
	statusStream = "JOBS_STATUS"
	logsStream   = "JOBS_LOGS"
	dlqStream    = "JOBS_DLQ"

	tasksSubject  = "jobs.tasks"
	statusSubject = "jobs.status"
	logsSubject   = "jobs.logs" // a job's is below it
	dlqSubject    = "jobs.dlq"

	// producersDurable is the consumer of tasks that somebody else published.
	producersDurable = "millrace-direct"

	// outboxHeader marks tasks that have a row already, as it was published by their outbox.
	outboxHeader = "Millrace-Outbox"
)

// statusRetention is how long the changes of jobs are kept (design, section 7).
const statusRetention = 14 * 24 * time.Hour

// Streams are those the contract publishes to, with how long their messages are kept (FB-090 to
// FB-092). A task that nobody has taken in is kept beyond that (FB-094).
func Streams(tasks, logs, dlq time.Duration) []stream.Spec {
	return []stream.Spec{
		{Name: tasksStream, Subjects: []string{tasksSubject}, MaxAge: tasks,
			Consumer: producersDurable},
		{Name: statusStream, Subjects: []string{statusSubject}, MaxAge: statusRetention},
		{Name: logsStream, Subjects: []string{logsSubject + ".*"}, MaxAge: logs},
		{Name: dlqStream, Subjects: []string{dlqSubject}, MaxAge: dlq},
	}
}

func logSubject(jobID string) string { return logsSubject + "." + jobID }

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

func (l *logEntry) append(o *strictjson.Object, fields func(*strictjson.Object)) {
	o.Text("job_id", l.jobID)
	o.Optional("resource_id", l.resourceID)
	o.Text("level", l.level)
	o.Text("message", l.message)
	o.Object("fields", fields)
	o.Int("timestamp_ms", l.at.UnixMilli())
	o.Optional("trace_id", l.traceID)
}

// The body of an outbox message holds what is to be published of a change: one member for each
// subject.

// jobMessages is what a change of a job tells: its status where that has changed, and a line of its
// log.
func jobMessages(j *job.Job, ev job.Event) []byte {
	e := decodeJobDetails(j)
	l := logEntry{jobID: j.ID.Key, traceID: e.traceID, level: levelInfo, at: ev.At}
	o := strictjson.NewObject(make([]byte, 0, 512))
	switch ev.Cause {
	case job.Started:
		if ev.Next != inProgress {
			return nil
		}
		l.message = "the first task is taken up"
	case job.Satisfied:
		l.message = "all tasks are settled"
	case job.Retried:
		l.message = "tasks are open again"
	case job.Succeeded, job.FailedForGood:
		l.message = "the job is " + string(ev.Next)
		if _, wrong := readFailure(j.Failure); wrong && ev.Prev == finalizing && ev.Reason != "" {
			l.level, l.message = levelError,
				"the job is "+string(ev.Next)+", but its handler failed to take that in"
		}
	case job.Submitted: // the log begins before: see openLog
	default:
		return nil
	}
	if l.message != "" {
		o.Object(logsSubject, func(o *strictjson.Object) {
			l.append(o, func(o *strictjson.Object) {
				appendCounts(o, j)
				appendLastError(o, j)
			})
		})
	}
	// else it is that of before
	if ev.Cause != job.Succeeded && (ev.Cause != job.Satisfied || j.FailedDeps == 0) {
		o.Object(statusSubject, func(o *strictjson.Object) { appendStatus(o, j, &e, ev.At) })
	}
	return o.End()
}

// appendStatus writes a message of jobs.status.
func appendStatus(o *strictjson.Object, j *job.Job, e *jobDetails, at time.Time) {
	o.Text("job_id", j.ID.Key)
	o.Text("job_type", j.Queue)
	o.Text("status", statusOf(j))
	appendCounts(o, j)
	o.Optional("manifest_key", e.manifestKey)
	o.Optional("tenant", e.tenant)
	appendLastError(o, j)
	o.Time("timestamp", at)
}

// taskMessages is what a change of a task tells: the task itself where it is to be done, a line of
// its job's log, and its dead letter.
func taskMessages(j *job.Job, ev job.Event) []byte {
	l := decodeTaskLabel(j)
	o := strictjson.NewObject(make([]byte, 0, 512+len(j.Payload)))
	o.Object(logsSubject, func(o *strictjson.Object) { appendTaskLog(o, j, &l, ev) })
	switch ev.Cause {
	case job.Submitted:
		if !l.direct { // else it is there
			o.Raw(tasksSubject, j.Payload)
		}
	case job.Retried:
		o.Raw(tasksSubject, j.Payload)
	case job.FailedForGood, job.ExpiredForGood:
		o.Object(dlqSubject, func(o *strictjson.Object) {
			why, _ := readFailure(j.Failure)
			appendDeadLetter(o, j.Payload, why, tryNumber(j, ev.Cause), ev.At)
		})
	}
	return o.End()
}

// tryNumber is which try of a task a change belongs to. One that was given back, because its host
// wants to be left alone or the node stopped, was none, as is one whose worker was lost.
func tryNumber(j *job.Job, on job.Cause) int {
	if on == job.Failed {
		return j.FailedAttempts // it is counted
	}
	return min(j.FailedAttempts+1, j.MaxAttempts)
}

func appendTaskLog(o *strictjson.Object, j *job.Job, l *taskLabel, ev job.Event) {
	e := logEntry{jobID: l.jobID, resourceID: l.resourceID, traceID: l.traceID, level: levelInfo,
		at: ev.At}
	logText := map[job.Cause]struct{ level, message string }{
		job.Submitted:      {levelInfo, "the task is queued"},
		job.Claimed:        {levelInfo, "the download begins"},
		job.Succeeded:      {levelInfo, "the resource is stored"},
		job.Failed:         {levelWarn, "the try failed"},
		job.FailedForGood:  {levelError, "the task failed and is not tried again"},
		job.Expired:        {levelWarn, "the worker was lost"},
		job.ExpiredForGood: {levelError, "the worker was lost, and the task is not tried again"},
		job.Released:       {levelInfo, "the worker gave the task back"},
		job.Retried:        {levelInfo, "the task is replayed"},
	}[ev.Cause]
	e.level, e.message = logText.level, logText.message
	e.append(o, func(o *strictjson.Object) {
		o.Int("attempt", int64(tryNumber(j, ev.Cause)))
		switch ev.Cause {
		case job.Claimed:
			o.Text("worker", j.Worker)
		case job.Succeeded:
			// an entry is one line, however a worker outside spaces its result
			var line bytes.Buffer
			if strictjson.KindOf(j.Result) == strictjson.KindObject &&
				len(j.Result) <= maxTaskMessage && json.Compact(&line, j.Result) == nil {
				o.Raw("result", line.Bytes())
			}
		case job.Failed, job.FailedForGood, job.Expired, job.ExpiredForGood:
			failure, _ := readFailure(j.Failure)
			failure.append(o)
		}
		if j.State == waiting && j.Phase == job.Waiting {
			o.Time("next_try_at", j.DueAt)
		}
	})
}

// appendDeadLetter writes a message of jobs.dlq (FB-084); task is JSON.
func appendDeadLetter(o *strictjson.Object, task []byte, why failure, attempts int, at time.Time) {
	o.Raw("task", task)
	o.Text("failure_code", why.code)
	o.Text("failure_message", why.message)
	o.Int("attempts", int64(attempts))
	o.Time("failed_at", at)
}

// Deliver publishes what has happened to jobs and tasks. It may be given the same messages again:
// the streams know them by their ids, as the times of a job's changes grow strictly.
func (f *FetchBox) Deliver(ctx context.Context, messages []job.Message) error {
	all := make([]stream.Message, 0, 2*len(messages))
	for i := range messages {
		m := &messages[i]
		id := m.JobID.Contract + "/" + m.JobID.Key + "/" + strconv.FormatInt(m.At.UnixMicro(), 10) +
			"/"
		for name, value := range strictjson.Members(m.Body) {
			subject := string(name)
			out := stream.Message{Subject: subject, ID: id + subject, Data: value}
			switch subject {
			case logsSubject:
				out.Subject = logSubject(loggedJob(value))
			case tasksSubject:
				out.Header = map[string]string{outboxHeader: "1"}
			}
			all = append(all, out)
		}
	}
	_, err := f.publish(ctx, all)
	return err
}

// loggedJob is the job that an entry of a log belongs to.
func loggedJob(entry []byte) string {
	for name, value := range strictjson.Members(entry) {
		if string(name) == "job_id" {
			id, _ := strictjson.String(value)
			return id
		}
	}
	return ""
}
