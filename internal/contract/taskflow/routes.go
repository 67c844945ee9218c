package taskflow

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

const (
	jobsPath = "/api/v1/jobs"
	jobPath  = jobsPath + "/{job_id}"
)

// routes lists the five routes of the document, those of graphs, and those that end or repeat what
// a job does (RT-001). Routes that read jobs forbid caches to store them, as a job changes without
// a request.
func (t *TaskFlow) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: jobsPath, Action: "create", Handle: t.submitJob,
			ReadsBody: true},
		{Method: http.MethodGet, Pattern: jobsPath, Action: "search", Handle: t.listJobs,
			NoStore: true},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: t.getJob, NoStore: true},
		{Method: http.MethodPut, Pattern: jobPath, Action: "update", Handle: t.updateJob,
			ReadsBody: true},
		{Method: http.MethodDelete, Pattern: jobPath, Action: "delete", Handle: t.deleteJob,
			Query: []string{"cascade"}},
		{Method: http.MethodPost, Pattern: jobPath + "/cancel", Action: "cancel",
			Handle: t.cancelJob, ReadsBody: true},
		{Method: http.MethodPost, Pattern: jobPath + "/rerun", Action: "rerun",
			Handle: t.rerunOne, ReadsBody: true},
		{Method: http.MethodPost, Pattern: jobPath + "/graph/rerun", Action: "rerun_graph",
			Handle: t.rerunAll, ReadsBody: true},
		{Method: http.MethodGet, Pattern: jobPath + "/graph", Action: "get_graph", Handle: t.getGraph,
			NoStore: true},
		{Method: http.MethodPost, Pattern: "/api/v1/graphs", Action: "create_graph",
			Handle: t.submitGraph, ReadsBody: true, BodyLimit: t.GraphBodyLimit},
	}
}
