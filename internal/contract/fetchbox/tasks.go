package fetchbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// A task has three forms:
//
//	handler.Task   in the code, and in the handlers of job types
//	message        its JSON: the payload of its row, and what jobs.tasks carries (encodeTask)
//	taskLabel      which task it is, without its content: the definition of its row
//
// Its defaults are filled in when it is stored and again before each download. The second time
// fills only fields that are still empty: a setting that has changed meanwhile takes effect where
// it was empty before, and not where the stored task has a value.

// maxTaskMessage bounds the message of a task, in bytes; the streams refuse larger ones.
const maxTaskMessage = 256 << 10

// handleTimeout bounds what a handler does with a submit, so that there is an answer before the
// connection is closed.
const handleTimeout = time.Minute

// build makes the tasks of a manifest by the handler of its job type. An error of the handler
// refuses the job; tasks that break the rules of Handler are a defect of the server.
func (t *jobType) build(ctx context.Context, j handler.Job, m handler.Manifest) ([]encodedTask,
	error) {
	within, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	tasks, err := t.handle(within, j, m)
	if err != nil {
		return nil, t.submitError(err)
	}
	seen, encoded := map[string]bool{}, make([]encodedTask, len(tasks))
	for i := range tasks {
		task := &tasks[i]
		t.fillDefaults(task)
		if task.ResourceID == "" || seen[task.ResourceID] {
			return nil, &job.Error{Kind: job.Internal, Op: Name,
				Msg: fmt.Sprintf("the handler of %s made a task without a resource id, or two with "+
					"the same", t.name)}
		}
		seen[task.ResourceID] = true
		encoded[i] = encodedTask{*task, encodeTask(task)}
		if len(encoded[i].message) > maxTaskMessage {
			return nil, invalid("the resource %q makes a task of more than %d bytes",
				task.ResourceID, maxTaskMessage)
		}
	}
	if len(tasks) == 0 {
		return nil, invalid("the job type %s finds nothing to download in the manifest", t.name)
	}
	return encoded, nil
}

// handle passes a manifest through the handler.
func (t *jobType) handle(ctx context.Context, j handler.Job, m handler.Manifest) ([]handler.Task,
	error) {
	m, err := t.handler.Prepare(ctx, j, m)
	if err != nil {
		return nil, err
	}
	tasks, err := t.handler.Tasks(ctx, j, m)
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		task := &tasks[i]
		task.JobID, task.JobType, task.Tenant = j.ID, t.name, j.Tenant
		task.TraceID, task.ManifestKey, task.Attempt = j.TraceID, j.ManifestKey, 1
	}
	return tasks, t.handler.Adjust(ctx, tasks)
}

// submitError is the error of a submit whose handler returned one. A handler that could not be
// asked is an outage, after which the submit may be repeated; any other error is for the client.
func (t *jobType) submitError(err error) error {
	var unavailable *handler.UnavailableError
	if errors.As(err, &unavailable) {
		return &job.Error{Kind: job.Unavailable, Op: Name,
			Msg: fmt.Sprintf("the handler of the job type %s cannot be asked", t.name), Err: err}
	}
	return invalid("the job type %s refuses the manifest: %v", t.name, err)
}

// adjust passes a task to the handler and completes it. It does so for tasks of every origin
// (FB-080), and it is idempotent. After an error the task is as it was.
func (t *jobType) adjust(ctx context.Context, task handler.Task) (handler.Task, error) {
	tasks := []handler.Task{task}
	if err := t.handler.Adjust(ctx, tasks); err != nil {
		return task, err
	}
	t.fillDefaults(&tasks[0])
	return tasks[0], nil
}

// fillDefaults completes a task that the handler has adjusted with the settings of its job type:
// default headers, proxies, bucket and key. It is idempotent.
func (t *jobType) fillDefaults(task *handler.Task) {
	task.Headers = mergeHeaders(task.Headers, t.DefaultHeaders)
	if task.Tags == nil {
		task.Tags = map[string]string{}
	}
	if task.Proxy == nil {
		task.Proxy = t.proxy()
	}
	var storage handler.Storage
	if task.Storage != nil {
		storage = *task.Storage
	}
	if storage.Bucket == "" {
		storage.Bucket = t.Bucket
	}
	if storage.Key == "" {
		storage.Key = handler.Key(t.KeyPrefix, t.name, task.JobID, task.ResourceID)
	}
	task.Storage = &storage
}

// mergeHeaders adds default headers to those of a resource. The resource's own value wins, in
// whatever case its name is written (FB-023).
func mergeHeaders(own map[string]string, defaults map[string]setting.Secret) map[string]string {
	all := make(map[string]string, len(own)+len(defaults))
	for name, value := range defaults {
		all[name] = value.Reveal()
	}
	for name, value := range own {
		for other := range defaults {
			if strings.EqualFold(name, other) {
				delete(all, other)
			}
		}
		all[name] = value
	}
	return all
}

// encodedTask is a task with its message.
type encodedTask struct {
	handler.Task
	message []byte
}

// encodeTask writes the message of a task (G-FB-36).
func encodeTask(t *handler.Task) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(t) // strings, maps of strings and a number: it cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// decodeTask reads the message of a task. Unknown members are ignored; a member of another JSON
// type is an error.
func decodeTask(payload []byte) (t handler.Task, err error) {
	err = json.Unmarshal(payload, &t)
	return t, err
}

// taskLabel names a task without its message, which reads of the store may leave out. It is the
// definition of the row.
type taskLabel struct {
	jobID, resourceID, traceID string
	direct                     bool // a direct producer published it
}

// encode returns the label as it is stored.
func (l *taskLabel) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 192))
	o.Text("job_id", l.jobID)
	o.Text("resource_id", l.resourceID)
	o.Text("trace_id", l.traceID)
	if l.direct {
		o.Bool("direct", true)
	}
	return o.End()
}

// decodeTaskLabel reads what encode wrote; members that cannot be read stay empty.
func decodeTaskLabel(j *job.Job) (l taskLabel) {
	for name, value := range strictjson.Members(j.Definition) {
		switch string(name) {
		case "job_id":
			l.jobID, _ = strictjson.String(value)
		case "resource_id":
			l.resourceID, _ = strictjson.String(value)
		case "trace_id":
			l.traceID, _ = strictjson.String(value)
		case "direct":
			l.direct, _ = strictjson.Bool(value)
		}
	}
	return l
}

// rowOverhead is the approximate size of a row without its bodies. LedgerMaxBytes counts it.
const rowOverhead = 256

// taskRow is a task as the engine stores it. key is the UUID under which remote workers see it
// (G-FB-35); trace is a carrier, or "" for the task of a direct producer.
func (f *FetchBox) taskRow(key string, t *encodedTask, trace string,
	direct bool) engine.Submission {
	l := taskLabel{t.JobID, t.ResourceID, t.TraceID, direct}
	j := job.Job{
		ID:         engineTaskID(key),
		Alias:      taskAlias(t.JobID, t.ResourceID),
		Queue:      t.JobType,
		Lease:      f.Lease,
		Definition: l.encode(),
		Payload:    t.message,
		Trace:      trace,
	}
	f.allowAttempts(&j)
	j.Size = int64(rowOverhead + len(j.Definition) + len(j.Payload))
	return engine.Submission{Job: j, Parent: engineJobID(t.JobID)}
}

// jobRow is a job as the engine stores it. It has no priority: attributes.priority has no effect on
// the order of jobs (G-FB-28).
func (f *FetchBox) jobRow(key, jobType string, details *jobDetails,
	trace string) engine.Submission {
	j := job.Job{
		ID:         engineJobID(key),
		Queue:      jobType,
		Lease:      f.Lease,
		Definition: details.encode(),
		Trace:      trace,
	}
	j.Size = int64(rowOverhead + len(j.Definition))
	return engine.Submission{Job: j}
}
