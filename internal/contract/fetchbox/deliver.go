package fetchbox

import (
	"context"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

// Every change of a job or a task writes a message to the outbox, in the transaction of the change.
// Its body is a JSON object with one member for each subject that the change is published on:
//
//	{"jobs.logs.ID": {…}, "jobs.status": {…}}    a change of a job, by jobMessages
//	{"jobs.logs.ID": {…}, "jobs.tasks": {…}}     a task that is ready, by taskMessages
//	{"jobs.logs.ID": {…}, "jobs.dlq": {…}}       a task that was given up
//
// Deliver publishes each member as it is. So a change is one message of the outbox, and its parts
// are published in their order.

// The streams and their subjects (G-FB-36).
const (
	tasksStream  = "JOBS_TASKS"
	statusStream = "JOBS_STATUS"
	logsStream   = "JOBS_LOGS"
	dlqStream    = "JOBS_DLQ"

	tasksSubject  = "jobs.tasks"
	statusSubject = "jobs.status"
	logsSubject   = "jobs.logs" // each job has a subject below it
	dlqSubject    = "jobs.dlq"

	// producersDurable names the consumer that ingests the tasks of direct producers.
	producersDurable = "millrace-direct"

	// outboxHeader marks a task that the outbox published: its row exists already.
	outboxHeader = "Millrace-Outbox"
)

// statusRetention is how long the stream keeps changes of jobs.
const statusRetention = 14 * 24 * time.Hour

// Streams returns the streams that the contract publishes to, with the retention of their messages
// (FB-090 to FB-092). A task that has not been ingested yet is kept beyond it (FB-094).
func Streams(tasks, logs, dlq time.Duration) []stream.Spec {
	return []stream.Spec{
		{Name: tasksStream, Subjects: []string{tasksSubject}, MaxAge: tasks,
			Consumer: producersDurable},
		{Name: statusStream, Subjects: []string{statusSubject}, MaxAge: statusRetention},
		{Name: logsStream, Subjects: []string{logsSubject + ".*"}, MaxAge: logs},
		{Name: dlqStream, Subjects: []string{dlqSubject}, MaxAge: dlq},
	}
}

// logSubject is the subject of one job's log.
func logSubject(jobID string) string { return logsSubject + "." + jobID }

// jobMessages is the outbox message for a change of a job: a line of its log, and its status where
// that has changed.
func jobMessages(j *job.Job, ev job.Event) []byte {
	switch ev.Cause {
	case job.Submitted, job.Satisfied, job.Retried, job.Succeeded, job.FailedForGood:
	case job.Started:
		if ev.Next != inProgress {
			return nil
		}
	default:
		return nil
	}
	details := decodeJobDetails(j)
	o := strictjson.NewObject(make([]byte, 0, 512))
	if l, ok := jobLogEntry(j, ev, details.traceID); ok {
		o.Object(logSubject(j.ID.Key), func(o *strictjson.Object) {
			l.append(o, func(o *strictjson.Object) {
				appendCounts(o, j)
				appendLastError(o, j)
			})
		})
	}
	if changesStatus(j, ev) {
		o.Object(statusSubject, func(o *strictjson.Object) {
			appendStatus(o, j, &details, ev.At)
		})
	}
	return o.End()
}

// changesStatus reports whether the status of a job differs from before a change. A job without
// failed tasks is completed from its last task on, one with failed tasks when it ends (G-FB-03).
func changesStatus(j *job.Job, ev job.Event) bool {
	switch ev.Cause {
	case job.Succeeded:
		return false
	case job.Satisfied:
		return j.FailedDeps == 0
	}
	return true
}

// appendStatus writes a message of jobs.status.
func appendStatus(o *strictjson.Object, j *job.Job, details *jobDetails, at time.Time) {
	o.Text("job_id", j.ID.Key)
	o.Text("job_type", j.Queue)
	o.Text("status", statusOf(j))
	appendCounts(o, j)
	o.Optional("manifest_key", details.manifestKey)
	o.Optional("tenant", details.tenant)
	appendLastError(o, j)
	o.Time("timestamp", at)
}

// taskMessages is the outbox message for a change of a task: a line of its job's log, the task
// itself when it is ready, and its dead letter when it is given up.
func taskMessages(j *job.Job, ev job.Event) []byte {
	l := decodeTaskLabel(j)
	o := strictjson.NewObject(make([]byte, 0, 512+len(j.Payload)))
	o.Object(logSubject(l.jobID), func(o *strictjson.Object) { appendTaskLog(o, j, &l, ev) })
	switch ev.Cause {
	case job.Submitted:
		if !l.direct { // the producer has published it already
			o.Raw(tasksSubject, j.Payload)
		}
	case job.Retried:
		o.Raw(tasksSubject, j.Payload)
	case job.FailedForGood, job.ExpiredForGood, job.Canceled:
		o.Object(dlqSubject, func(o *strictjson.Object) {
			failure, _ := decodeTaskError(j.Failure)
			attempts := attemptNumber(j, ev.Cause, ev.Prev)
			appendDeadLetter(o, j.Payload, &failure, attempts, ev.At)
		})
	}
	return o.End()
}

// appendDeadLetter writes a message of jobs.dlq (FB-084); task is JSON.
func appendDeadLetter(o *strictjson.Object, task []byte, failure *taskError, attempts int,
	at time.Time) {
	o.Raw("task", task)
	o.Text("failure_code", failure.code)
	o.Text("failure_message", failure.message)
	o.Int("attempts", int64(attempts))
	o.Time("failed_at", at)
}

// Deliver publishes messages of the outbox. It may be called with the same messages again: the
// streams recognise them by their ids, which hold the time of the change, and the times of a job's
// changes are strictly increasing.
func (f *FetchBox) Deliver(ctx context.Context, messages []job.Message) error {
	all := make([]stream.Message, 0, 2*len(messages))
	for i := range messages {
		m := &messages[i]
		changedAt := strconv.FormatInt(m.At.UnixMicro(), 10)
		id := m.JobID.JobType + "/" + m.JobID.Key + "/" + changedAt + "/"
		for name, value := range strictjson.Members(m.Body) {
			subject := string(name)
			out := stream.Message{Subject: subject, ID: id + subject, Data: value}
			if subject == tasksSubject {
				out.Header = map[string]string{outboxHeader: "1"}
			}
			all = append(all, out)
		}
	}
	_, err := f.publish(ctx, all)
	return err
}
