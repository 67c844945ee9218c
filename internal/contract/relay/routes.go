package relay

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

const (
	jobPath = "/v2/queues/{queue}/jobs/{id}"
	runPath = jobPath + "/run-id/{run_id}"

	jobPathV1 = "/v1/queues/{queue}/jobs/{id}"
)

// What the queries of routes may hold.
var (
	modeOnly    = []string{"mode"}
	numJobsOnly = []string{"num_jobs"}
)

// routes is version 2. A GET of next takes jobs, so it changes something.
func (r *Relay) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v2/queues/jobs", Action: "enqueue", Handle: r.enqueue, Query: modeOnly, TakesBody: true, Member: member},
		{Method: http.MethodGet, Pattern: "/v2/queues/{queue}/jobs", Action: "next", Handle: r.next, Query: numJobsOnly, Changes: true, NoStore: true, Member: member},
		{Method: http.MethodPatch, Pattern: runPath, Action: "heartbeat", Handle: r.heartbeat, TakesBody: true, Member: member},
		{Method: http.MethodPut, Pattern: runPath, Action: "requeue", Handle: r.requeue, Query: modeOnly, TakesBody: true, Member: member},
		{Method: http.MethodDelete, Pattern: runPath, Action: "complete", Handle: r.complete, Member: member},
		{Method: http.MethodDelete, Pattern: jobPath, Action: "delete", Handle: r.remove, Member: member},
		{Method: http.MethodHead, Pattern: jobPath, Action: "exists", Handle: r.exists, NoStore: true, Member: member},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: r.get, NoStore: true, Member: member},
	}
}

// routesV1 is version 1, for the public Go client (G-RL-22).
func (r *Relay) routesV1() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v1/queues/jobs", Action: "enqueue", Handle: r.enqueueV1, TakesBody: true, Member: memberV1},
		{Method: http.MethodPut, Pattern: "/v1/queues/jobs", Action: "reschedule", Handle: r.rescheduleV1, TakesBody: true, Member: memberV1},
		{Method: http.MethodGet, Pattern: "/v1/queues/{queue}/jobs", Action: "next", Handle: r.nextV1, Query: numJobsOnly, Changes: true, NoStore: true, Member: memberV1},
		{Method: http.MethodPatch, Pattern: jobPathV1, Action: "heartbeat", Handle: r.heartbeatV1, TakesBody: true, Member: memberV1},
		{Method: http.MethodDelete, Pattern: jobPathV1, Action: "delete", Handle: r.remove, Member: memberV1},
		{Method: http.MethodHead, Pattern: jobPathV1, Action: "exists", Handle: r.exists, NoStore: true, Member: memberV1},
		{Method: http.MethodGet, Pattern: jobPathV1, Action: "get", Handle: r.getV1, NoStore: true, Member: memberV1},
	}
}
