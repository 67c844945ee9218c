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

// routes is version 2.
func (r *Relay) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v2/queues/jobs", Handle: r.enqueue, TakesBody: true, Member: member},
		{Method: http.MethodGet, Pattern: "/v2/queues/{queue}/jobs", Handle: r.next, NoStore: true, Member: member},
		{Method: http.MethodPatch, Pattern: runPath, Handle: r.heartbeat, TakesBody: true, Member: member},
		{Method: http.MethodPut, Pattern: runPath, Handle: r.requeue, TakesBody: true, Member: member},
		{Method: http.MethodDelete, Pattern: runPath, Handle: r.complete, Member: member},
		{Method: http.MethodDelete, Pattern: jobPath, Handle: r.remove, Member: member},
		{Method: http.MethodHead, Pattern: jobPath, Handle: r.exists, NoStore: true, Member: member},
		{Method: http.MethodGet, Pattern: jobPath, Handle: r.get, NoStore: true, Member: member},
	}
}

// routesV1 is version 1, for the public Go client (G-RL-22).
func (r *Relay) routesV1() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v1/queues/jobs", Handle: r.enqueueV1, TakesBody: true, Member: memberV1},
		{Method: http.MethodPut, Pattern: "/v1/queues/jobs", Handle: r.rescheduleV1, TakesBody: true, Member: memberV1},
		{Method: http.MethodGet, Pattern: "/v1/queues/{queue}/jobs", Handle: r.nextV1, NoStore: true, Member: memberV1},
		{Method: http.MethodPatch, Pattern: jobPathV1, Handle: r.heartbeatV1, TakesBody: true, Member: memberV1},
		{Method: http.MethodDelete, Pattern: jobPathV1, Handle: r.remove, Member: memberV1},
		{Method: http.MethodHead, Pattern: jobPathV1, Handle: r.exists, NoStore: true, Member: memberV1},
		{Method: http.MethodGet, Pattern: jobPathV1, Handle: r.getV1, NoStore: true, Member: memberV1},
	}
}
