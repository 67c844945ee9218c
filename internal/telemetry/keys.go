package telemetry

// The keys of log lines. A key means the same in every line of every package.
const (
	RequestID    = "request_id"
	ClientID     = "client_id"
	JobID        = "job_id"
	Contract     = "contract"
	Queue        = "queue"
	RunID        = "run_id"
	Worker       = "worker"
	Action       = "action"
	CurrentState = "current_state"
	NextState    = "next_state"
	Attempt      = "attempt"
	ErrorCode    = "error_code"
	ErrorMessage = "error_message"
	Method       = "method"
	Route        = "route"
	Status       = "status"
	Duration     = "duration"
	Remote       = "remote"
	Stack        = "stack"
)
