package fetchbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// maxTaskMessage bounds the message of a task: a stream takes no larger ones.
const maxTaskMessage = 256 << 10

// build lets the handler of a job type make the tasks of a manifest. An error of the handler
// refuses the job.
func (t *jobType) build(ctx context.Context, j handler.Job, m handler.Manifest) ([]handler.Task,
	error) {
	m, err := t.handler.Prepare(ctx, j, m)
	if err != nil {
		return nil, invalid("the job type %s refuses the manifest: %v", t.name, err)
	}
	tasks, err := t.handler.Tasks(ctx, j, m)
	if err != nil {
		return nil, invalid("the job type %s refuses the manifest: %v", t.name, err)
	}
	seen := map[string]bool{}
	for i := range tasks {
		task := &tasks[i]
		task.JobID, task.JobType, task.Tenant, task.TraceID, task.ManifestKey, task.Attempt = j.ID,
			t.name, j.Tenant, j.TraceID, j.ManifestKey, 1
		if *task, err = t.fillDefaults(ctx, *task); err != nil {
			return nil, invalid("the job type %s refuses the resource %q: %v", t.name,
				task.ResourceID, err)
		}
		if task.ResourceID == "" || seen[task.ResourceID] {
			return nil, &job.Error{Kind: job.Internal, Op: Name,
				Msg: fmt.Sprintf("the handler of %s made two tasks of one resource, or one of none",
					t.name)}
		}
		seen[task.ResourceID] = true
		if len(encodeTask(task)) > maxTaskMessage {
			return nil, invalid("the resource %q makes a task of more than %d bytes",
				task.ResourceID, maxTaskMessage)
		}
	}
	if len(tasks) == 0 {
		return nil, invalid("the job type %s finds nothing to download in the manifest", t.name)
	}
	return tasks, nil
}

// fillDefaults gives a task what it leaves open and the job type says: default headers, proxies,
// bucket and key, and whatever else the handler does to each task. It is the same wherever a task
// comes from (FB-080), and twice is once.
func (t *jobType) fillDefaults(ctx context.Context, task handler.Task) (handler.Task, error) {
	if a, adjusts := t.handler.(handler.Adjuster); adjusts {
		var err error
		if task, err = a.Adjust(ctx, task); err != nil {
			return task, err
		}
	}
	task.Headers = mergeHeaders(task.Headers, t.DefaultHeaders)
	if task.Tags == nil {
		task.Tags = map[string]string{}
	}
	if task.Proxy == nil {
		task.Proxy = t.Proxy
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
	return task, nil
}

// mergeHeaders lays headers over defaults: a resource's own value wins, however its name is spelled
// (FB-023).
func mergeHeaders(own, defaults map[string]string) map[string]string {
	all := make(map[string]string, len(own)+len(defaults))
	for name, value := range defaults {
		all[name] = value
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

// encodeTask writes a task as it travels (G-FB-36).
func encodeTask(t *handler.Task) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(t) // strings, maps of them and a number: it cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// decodeTask reads the task of a row.
func decodeTask(payload []byte) (t handler.Task, err error) {
	err = json.Unmarshal(payload, &t)
	return t, err
}

// taskLabel is what of a task is known without its message.
type taskLabel struct {
	jobID, resourceID, traceID string
	direct                     bool // somebody else published it
}

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

// decodeTaskLabel reads what encode wrote; what cannot be read is left out.
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

// rowOverhead is about what a row takes beside its bodies; the ledger's size is counted with it.
const rowOverhead = 256

// taskRow is a task as the engine takes it.
func (f *FetchBox) taskRow(key string, t *handler.Task, trace string,
	direct bool) engine.Submission {
	l := taskLabel{t.JobID, t.ResourceID, t.TraceID, direct}
	j := job.Job{ID: engineTaskID(key), Alias: taskAlias(t.JobID, t.ResourceID), Queue: t.JobType,
		Lease: f.Lease, MaxAttempts: f.Tries,
		Definition: l.encode(), Payload: encodeTask(t), Trace: trace}
	j.Size = int64(rowOverhead + len(j.Definition) + len(j.Payload))
	return engine.Submission{Job: j, Parent: engineJobID(t.JobID)}
}

// jobRow is a job as the engine takes it.
func (f *FetchBox) jobRow(key, jobType string, alias job.IdentityHash, e *jobDetails,
	trace string) engine.Submission {
	j := job.Job{ID: engineJobID(key), Alias: alias, Queue: jobType, Priority: defaultPriority,
		Lease: f.Lease, Definition: e.encode(), Trace: trace}
	j.Size = int64(rowOverhead + len(j.Definition))
	return engine.Submission{Job: j}
}
