package fetchbox

import (
	"context"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// The ledger is the rows of jobs and tasks in the engine's store. What the engine has a column for
// stands there; what only FetchBox needs is encoded as the definition of the row:
//
//	             job                            task
//	key          job_id                         a UUID of its own
//	alias        tenant, job type and           job and resource
//	             idempotency key, if it has one
//	queue        job type                       job type
//	definition   jobDetails                     taskLabel
//	payload      none                           the message of jobs.tasks
//	failure      latest error of its tasks,     error of its latest failed attempt
//	             or that of Finalize
//	result       none                           storedResource, or what a worker sent
//
// The manifest itself is an object; the row has its URI.

func engineJobID(key string) job.ID  { return job.ID{JobType: Name, Key: key} }
func engineTaskID(key string) job.ID { return job.ID{JobType: Tasks, Key: key} }

// keyAlias is the alias of a job with an idempotency key. A repeated submit finds the job by it
// (FB-047).
func keyAlias(tenant, jobType, key string) job.IdentityHash {
	return job.AliasOf(Name, tenant, jobType+"\x00"+key)
}

// taskAlias is the alias of a task, by which each resource of a job exists once (FB-086).
func taskAlias(jobID, resourceID string) job.IdentityHash {
	return job.AliasOf(Tasks, jobID, resourceID)
}

// jobDetails are the details of a job that have no column. They are its definition.
type jobDetails struct {
	manifestKey string
	tenant      string
	resources   int    // of the manifest
	cursor      uint64 // offset of the first entry of the job's log (FB-060)
	traceID     string
}

// encode returns the details as they are stored.
func (d *jobDetails) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("manifest_key", d.manifestKey)
	o.Text("tenant", d.tenant)
	o.Int("resources", int64(d.resources))
	o.Int("cursor", int64(d.cursor))
	o.Text("trace_id", d.traceID)
	return o.End()
}

// decodeJobDetails reads what encode wrote; details that cannot be read stay empty.
func decodeJobDetails(j *job.Job) (d jobDetails) {
	for name, value := range strictjson.Members(j.Definition) {
		switch string(name) {
		case "manifest_key":
			d.manifestKey, _ = strictjson.String(value)
		case "tenant":
			d.tenant, _ = strictjson.String(value)
		case "resources":
			n, _ := strictjson.Int(value, 64)
			d.resources = int(n)
		case "cursor":
			n, _ := strictjson.Int(value, 64)
			d.cursor = uint64(n)
		case "trace_id":
			d.traceID, _ = strictjson.String(value)
		}
	}
	return d
}

// findJob reads the job that a path names.
func (f *FetchBox) findJob(ctx context.Context, name string) (*job.Job, error) {
	key, ok := uuids.Parse(name)
	if !ok {
		return nil, notFound("job")
	}
	return f.Engine.Get(ctx, engineJobID(key))
}
