package fetchbox

import (
	"time"

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
	logsSubject   = "jobs.logs" // each job has a subject below it
	dlqSubject    = "jobs.dlq"

	// producersDurable names the consumer that ingests the tasks of direct producers.
	producersDurable = "millrace-direct"

	// outboxHeader marks a task that the outbox published: its row exists already.
	outboxHeader = "Millrace-Outbox"
)

// statusRetention is how long the stream keeps changes of jobs (design, section 7).
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
