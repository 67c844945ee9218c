package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TaskFlow is the TaskFlow contract: jobs with priorities, dependencies and retry policies. Every
// error is an [*Error] whose Code, when the server answered, is one of the TaskFlowCode constants.
// A TaskFlow is safe for concurrent use.
//
// A [JobWorker] for [ContractTaskFlow] executes the jobs, or handlers in the server do (G-TF-02).
type TaskFlow struct{ client *Client }

// TaskFlow returns the TaskFlow contract on this client.
func (c *Client) TaskFlow() *TaskFlow { return &TaskFlow{client: c} }

// The codes of TaskFlow's errors: the three of its document (TF-085), and those of requests that
// reach no job (G-TF-32).
const (
	TaskFlowCodeValidationError  = "VALIDATION_ERROR"
	TaskFlowCodeNotFound         = "NOT_FOUND"
	TaskFlowCodeConflict         = "CONFLICT"
	TaskFlowCodeUnauthorized     = "UNAUTHORIZED"
	TaskFlowCodeMethodNotAllowed = "METHOD_NOT_ALLOWED"
	TaskFlowCodePayloadTooLarge  = "PAYLOAD_TOO_LARGE"
	TaskFlowCodeInternalError    = "INTERNAL_ERROR"

	// TaskFlowCodeIdempotencyConflict says that another request has used the key (RT-002).
	TaskFlowCodeIdempotencyConflict = "IDEMPOTENCY_CONFLICT"
)

const taskFlowJobsPath = "/api/v1/jobs"

// Submit stores a job (TF-069) and returns it as the server has it: READY, PENDING while it has
// unfinished dependencies, or BLOCKED if one of them has failed (TF-032).
//
// Errors: [ErrInvalid], also for an unknown dependency (TF-070, TF-008); [ErrUnauthorized];
// [ErrRetryable].
//
// Repeating would store another job, so a try whose answer was lost is not repeated. The error is
// Uncertain then, and the job may exist.
func (t *TaskFlow) Submit(ctx context.Context, spec TaskFlowSpec) (TaskFlowJob, error) {
	return t.submit(ctx, spec, nil)
}

// SubmitOnce is [TaskFlow.Submit] with an idempotency key of 1 to 255 characters (RT-002): of equal
// specs with the same key one makes a job, within the day for which the server remembers the key,
// and all others return that job as it is then. An empty key is one that no other call has.
//
// Errors: those of Submit; [ErrConflict] with the code [TaskFlowCodeIdempotencyConflict] where
// another spec came with the key; [ErrNotFound] where the job was deleted since. Repeating is safe.
func (t *TaskFlow) SubmitOnce(ctx context.Context, key string,
	spec TaskFlowSpec) (TaskFlowJob, error) {
	return t.submit(ctx, spec, idempotencyHeader(key))
}

func (t *TaskFlow) submit(ctx context.Context, spec TaskFlowSpec,
	header http.Header) (TaskFlowJob, error) {
	const op = "taskflow submit"
	body, err := spec.encode()
	if err != nil {
		return TaskFlowJob{}, invalid(op, "%v", err)
	}
	return taskFlowJob(ctx, t, call{op: op, method: http.MethodPost, path: taskFlowJobsPath,
		body: body, header: header, notIdempotent: header == nil,
		accept: []int{http.StatusCreated, http.StatusOK}})
}

// Get reads a job (TF-071).
//
// Errors: [ErrNotFound]; [ErrUnauthorized]; [ErrRetryable]. Repeating is safe.
func (t *TaskFlow) Get(ctx context.Context, id string) (TaskFlowJob, error) {
	const op = "taskflow get"
	path, err := taskFlowPath(id)
	if err != nil {
		return TaskFlowJob{}, invalid(op, "%v", err)
	}
	return taskFlowJob(ctx, t, call{op: op, method: http.MethodGet, path: path,
		readOnly: true, accept: []int{http.StatusOK}})
}

// Update changes the fields that are set in the patch and returns the job (TF-073, TF-078). The
// new dependencies of a PENDING job decide its status at once (TF-080).
//
// Errors: [ErrNotFound]; [ErrInvalid]; [ErrConflict] for a job that has finished (TF-075), and for
// unfinished dependencies of a job that is READY or RUNNING (G-TF-09); [ErrCycle]. Repeating is
// safe.
func (t *TaskFlow) Update(ctx context.Context, id string,
	patch TaskFlowPatch) (TaskFlowJob, error) {
	const op = "taskflow update"
	path, err := taskFlowPath(id)
	if err != nil {
		return TaskFlowJob{}, invalid(op, "%v", err)
	}
	body, err := patch.encode()
	if err != nil {
		return TaskFlowJob{}, invalid(op, "%v", err)
	}
	return taskFlowJob(ctx, t, call{op: op, method: http.MethodPut, path: path, body: body,
		accept: []int{http.StatusOK}})
}

// Delete deletes a job (TF-081). The run of a RUNNING job is lost (TF-084).
//
// Errors: [ErrNotFound]; [ErrConflict] when another job depends on it (TF-083).
//
// Repeating is safe: when a job is not found after a try whose answer was lost, Delete returns nil.
func (t *TaskFlow) Delete(ctx context.Context, id string) error {
	const op = "taskflow delete"
	path, err := taskFlowPath(id)
	if err != nil {
		return invalid(op, "%v", err)
	}
	return t.client.deleteOnce(ctx, call{op: op, path: path})
}

// DeleteWithDependents deletes a job and all that depend on it, directly or through others, or none
// of them (RT-001).
//
// Errors: [ErrNotFound]; [ErrConflict] while one of them is RUNNING. Repeating is as safe as that
// of [TaskFlow.Delete].
func (t *TaskFlow) DeleteWithDependents(ctx context.Context, id string) error {
	const op = "taskflow delete"
	path, err := taskFlowPath(id)
	if err != nil {
		return invalid(op, "%v", err)
	}
	return t.client.deleteOnce(ctx, call{op: op, path: path, query: "cascade=true"})
}

// Cancel ends the attempt of a job that is RUNNING: the job is FAILED for good, and its worker
// learns that its run is lost (RT-001). It returns the job.
//
// Errors: [ErrNotFound]; [ErrConflict] for a job that is not RUNNING, also when a try whose answer
// was lost has ended it: the error is Uncertain then.
func (t *TaskFlow) Cancel(ctx context.Context, id string) (TaskFlowJob, error) {
	const op = "taskflow cancel"
	path, err := taskFlowPath(id)
	if err != nil {
		return TaskFlowJob{}, invalid(op, "%v", err)
	}
	return taskFlowJob(ctx, t, call{op: op, method: http.MethodPost, path: path + "/cancel",
		accept: []int{http.StatusOK}})
}

// Rerun makes new jobs of one that is FAILED or BLOCKED, and of those of its ancestors and
// dependents that are as well (RT-001). It returns the ids of the copies by those of their
// originals. A job is rerun once, unless again is true.
//
// Errors: [ErrNotFound]; [ErrConflict] for any other job, and with Copies for one that was rerun
// before, by another call or by a try of this one whose answer was lost. With again a try whose
// answer was lost is not repeated.
func (t *TaskFlow) Rerun(ctx context.Context, id string, again bool) (map[string]string, error) {
	return t.rerun(ctx, "taskflow rerun", id, "/rerun", again)
}

// RerunGraph is [TaskFlow.Rerun] for all jobs that are connected with a job and are FAILED or
// BLOCKED. Without again those that were rerun before are left out.
func (t *TaskFlow) RerunGraph(ctx context.Context, id string,
	again bool) (map[string]string, error) {
	return t.rerun(ctx, "taskflow rerun graph", id, "/graph/rerun", again)
}

func (t *TaskFlow) rerun(ctx context.Context, op, id, route string,
	again bool) (map[string]string, error) {
	path, err := taskFlowPath(id)
	if err != nil {
		return nil, invalid(op, "%v", err)
	}
	answer, err := doJSON[struct {
		Jobs map[string]string `json:"jobs"`
	}](ctx, t.client, call{op: op, method: http.MethodPost, path: path + route,
		body:          fmt.Appendf(nil, `{"again":%t}`, again),
		notIdempotent: again, accept: []int{http.StatusCreated}})
	return answer.Jobs, err
}

// Wait polls a job until it has finished, and returns it. It polls after growing pauses of up to
// two seconds, and continues while the server is unavailable or limits requests. A job that has
// failed, or is blocked for good, is no error: its Status says how it ended.
//
// Errors: those of [TaskFlow.Get] except [ErrRetryable]; that of the context when it ends first.
func (t *TaskFlow) Wait(ctx context.Context, id string) (TaskFlowJob, error) {
	return watch(ctx, t.client, "taskflow wait",
		func() (TaskFlowJob, error) { return t.Get(ctx, id) },
		func(job TaskFlowJob) bool { return job.Status.Final() })
}

// TaskFlowFilter selects the jobs of a search. A job must match every field that is set (TF-094).
type TaskFlowFilter struct {
	// Queue and Status keep only the jobs with these values; empty keeps all.
	Queue  string
	Status TaskFlowStatus
	// PriorityMin and PriorityMax limit the priority, both inclusive; 0 means no limit.
	PriorityMin, PriorityMax int
	// CreatedAfter is inclusive, CreatedBefore exclusive (TF-092, TF-093); the zero time means no
	// limit.
	CreatedAfter, CreatedBefore time.Time
	// PageSize is how many jobs each request asks for, from 1 to 100; 0 leaves it to the server,
	// which sends 20 (TF-097).
	PageSize int
}

func (f TaskFlowFilter) query() url.Values {
	query := url.Values{}
	text := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	number := func(name string, value int) {
		if value != 0 {
			query.Set(name, strconv.Itoa(value))
		}
	}
	setTime := func(name string, value time.Time) {
		if !value.IsZero() {
			query.Set(name, value.UTC().Format(time.RFC3339Nano))
		}
	}
	text("queue", f.Queue)
	text("status", string(f.Status))
	number("priority_min", f.PriorityMin)
	number("priority_max", f.PriorityMax)
	setTime("created_after", f.CreatedAfter)
	setTime("created_before", f.CreatedBefore)
	number("limit", f.PageSize)
	return query
}

// TaskFlowPage is one page of a search.
type TaskFlowPage struct {
	// Jobs are the newest first, and those of the same time by id (TF-096).
	Jobs []TaskFlowJob
	// Next is the cursor of the next page; empty on the last page (TF-099).
	Next string
}

// Page reads one page of a search: the first page for an empty cursor, else the page whose cursor
// was Next of another page (TF-098).
//
// Errors: [ErrInvalid] for an invalid filter or cursor (TF-095, TF-102); [ErrUnauthorized];
// [ErrRetryable]. Repeating is safe.
func (t *TaskFlow) Page(ctx context.Context, filter TaskFlowFilter,
	cursor string) (TaskFlowPage, error) {
	query := filter.query()
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	wire, err := doJSON[struct {
		Items []taskFlowWire `json:"items"`
		Next  string         `json:"next_cursor"`
		More  bool           `json:"has_more"`
	}](ctx, t.client, call{
		op:       "taskflow search",
		method:   http.MethodGet,
		path:     taskFlowJobsPath,
		query:    query.Encode(),
		readOnly: true,
		accept:   []int{http.StatusOK},
	})
	if err != nil {
		return TaskFlowPage{}, err
	}
	page := TaskFlowPage{Jobs: make([]TaskFlowJob, len(wire.Items))}
	for i, item := range wire.Items {
		page.Jobs[i] = item.job()
	}
	if wire.More {
		page.Next = wire.Next
	}
	return page, nil
}

// Search iterates over all jobs that match the filter, page by page. A job that exists throughout
// comes exactly once (TF-101). It ends with the first error, which is one of [TaskFlow.Page].
func (t *TaskFlow) Search(ctx context.Context,
	filter TaskFlowFilter) iter.Seq2[TaskFlowJob, error] {
	return func(yield func(TaskFlowJob, error) bool) {
		for cursor := ""; ; {
			page, err := t.Page(ctx, filter, cursor)
			if err != nil {
				yield(TaskFlowJob{}, err)
				return
			}
			for _, job := range page.Jobs {
				if !yield(job, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// taskFlowJob makes a call whose answer is a job.
func taskFlowJob(ctx context.Context, t *TaskFlow, c call) (TaskFlowJob, error) {
	wire, err := doJSON[taskFlowWire](ctx, t.client, c)
	if err != nil {
		return TaskFlowJob{}, err
	}
	return wire.job(), nil
}

func taskFlowPath(id string) (string, error) {
	if err := checkName("job id", id); err != nil {
		return "", err
	}
	return taskFlowJobsPath + "/" + escape(id), nil
}
