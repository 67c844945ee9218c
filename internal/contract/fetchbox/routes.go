package fetchbox

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

// The paths of the contract. Mount gives what lies below operatorsPath to the operators' router,
// and the rest to that of clients.
const (
	submitPath      = "/jobs"
	operatorsPath   = "/operators/"
	jobsPath        = operatorsPath + "jobs"
	jobPath         = jobsPath + "/{job_id}"
	deadLettersPath = operatorsPath + "dlq"
)

// submitRoutes are the routes of clients.
func (f *FetchBox) submitRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: submitPath, Action: "submit", Handle: f.submitJob,
			ReadsBody: true},
	}
}

// operatorRoutes are the routes of operators: the three of the document, the list of jobs, what
// ends them or tries them once more, and the dead letters. The log has no Query, so it ignores
// unknown parameters: EventSource libraries add some of their own.
func (f *FetchBox) operatorRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: jobsPath, Action: "list", Handle: f.listJobs,
			Query: httpapi.PageQuery("status"), NoStore: true},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: f.getJob, NoStore: true},
		{Method: http.MethodPost, Pattern: jobPath + "/cancel", Action: "cancel",
			Handle: f.cancelJob},
		{Method: http.MethodPost, Pattern: jobPath + "/retry", Action: "retry", Handle: f.retryJob},
		{Method: http.MethodGet, Pattern: jobPath + "/logs", Action: "read_logs", Handle: f.logs,
			NoStore: true},
		{Method: http.MethodGet, Pattern: operatorsPath + "health", Action: "health",
			Handle: f.health, NoStore: true},
		{Method: http.MethodGet, Pattern: deadLettersPath, Action: "list_dead_letters",
			Handle: f.listDeadLetters, Query: httpapi.PageQuery(), NoStore: true},
		{Method: http.MethodPost, Pattern: deadLettersPath + "/{offset}/replay", Action: "replay",
			Handle: f.replayDeadLetter},
	}
}
