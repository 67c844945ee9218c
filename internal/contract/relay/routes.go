package relay

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

const (
	jobPath = "/v2/queues/{queue}/jobs/{id}"
	runPath = jobPath + "/run-id/{run_id}"

	deadLettersPath = "/v2/queues/{queue}/dead-letters"

	jobPathV1 = "/v1/queues/{queue}/jobs/{id}"
)

// The query parameters of routes.
var (
	modeOnly    = []string{"mode"}
	numJobsOnly = []string{"num_jobs"}
	nextOnly    = []string{"next"}
)

// routes lists the routes of version 2. The GET of next claims jobs, so a HEAD on its path is a 405
// (G-RL-19), and no answer about jobs may be kept by a cache. Routes with query parameters, and
// those that change something, refuse any other, so that a misspelt one is not ignored.
func (r *Relay) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v2/queues/jobs", Action: "enqueue", Handle: r.enqueue,
			Query: modeOnly, ReadsBody: true, DecodePathValue: unescapeMember},
		{Method: http.MethodGet, Pattern: "/v2/queues/{queue}/jobs", Action: "next", Handle: r.next,
			Query: numJobsOnly, NoStore: true, DecodePathValue: unescapeMember},
		{Method: http.MethodPatch, Pattern: runPath, Action: "heartbeat", Handle: r.heartbeat,
			ReadsBody: true, DecodePathValue: unescapeMember},
		{Method: http.MethodPut, Pattern: runPath, Action: "requeue", Handle: r.requeue,
			Query: modeOnly, ReadsBody: true, DecodePathValue: unescapeMember},
		{Method: http.MethodDelete, Pattern: runPath, Action: "complete", Handle: r.complete,
			DecodePathValue: unescapeMember},
		{Method: http.MethodPost, Pattern: "/v2/queues/heartbeats", Action: "heartbeats",
			Handle: r.heartbeatAll, ReadsBody: true, DecodePathValue: unescapeMember},
		{Method: http.MethodPost, Pattern: "/v2/queues/completions", Action: "completions",
			Handle: r.completeAll, Query: nextOnly, ReadsBody: true,
			DecodePathValue: unescapeMember},
		{Method: http.MethodDelete, Pattern: jobPath, Action: "delete", Handle: r.deleteJob,
			DecodePathValue: unescapeMember},
		{Method: http.MethodHead, Pattern: jobPath, Action: "exists", Handle: r.exists,
			NoStore: true, DecodePathValue: unescapeMember},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: r.getJob, NoStore: true,
			DecodePathValue: unescapeMember},
		{Method: http.MethodGet, Pattern: deadLettersPath, Action: "dead_letters",
			Handle: r.listDeadLetters, Query: httpapi.PageQuery(), NoStore: true,
			DecodePathValue: unescapeMember},
		{Method: http.MethodPost, Pattern: deadLettersPath + "/{id}/replay", Action: "replay",
			Handle: r.replayDeadLetter, ReadsBody: true, DecodePathValue: unescapeMember},
	}
}

// routesV1 lists the routes of version 1, for the public Go client (G-RL-22).
func (r *Relay) routesV1() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v1/queues/jobs", Action: "enqueue",
			Handle: r.enqueueV1, ReadsBody: true, DecodePathValue: unescapeMemberV1},
		{Method: http.MethodPut, Pattern: "/v1/queues/jobs", Action: "reschedule",
			Handle: r.rescheduleV1, ReadsBody: true, DecodePathValue: unescapeMemberV1},
		{Method: http.MethodGet, Pattern: "/v1/queues/{queue}/jobs", Action: "next",
			Handle: r.nextV1, Query: numJobsOnly, NoStore: true,
			DecodePathValue: unescapeMemberV1},
		{Method: http.MethodPatch, Pattern: jobPathV1, Action: "heartbeat", Handle: r.heartbeatV1,
			ReadsBody: true, DecodePathValue: unescapeMemberV1},
		{Method: http.MethodDelete, Pattern: jobPathV1, Action: "delete", Handle: r.deleteJob,
			DecodePathValue: unescapeMemberV1},
		{Method: http.MethodHead, Pattern: jobPathV1, Action: "exists", Handle: r.exists,
			NoStore: true, DecodePathValue: unescapeMemberV1},
		{Method: http.MethodGet, Pattern: jobPathV1, Action: "get", Handle: r.getJobV1, NoStore: true,
			DecodePathValue: unescapeMemberV1},
	}
}
