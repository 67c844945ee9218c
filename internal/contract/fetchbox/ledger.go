package fetchbox

import (
	"context"
	"strings"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// defaultPriority is that of every job: attributes.priority has no effect on order (G-FB-28), but a
// list needs one.
const defaultPriority = 5

func engineJobID(key string) job.ID  { return job.ID{Contract: Name, Key: key} }
func engineTaskID(key string) job.ID { return job.ID{Contract: Tasks, Key: key} }

// keyAlias is what a job is known by to whoever submits it again (FB-047).
func keyAlias(tenant, jobType, key string) job.IdentityHash {
	return job.AliasOf(Name, tenant, jobType+"\x00"+key)
}

// taskAlias makes a resource of a job a task once, whoever proposes it (FB-086).
func taskAlias(jobID, resourceID string) job.IdentityHash {
	return job.AliasOf(Tasks, jobID, resourceID)
}

// jobDetails is what of a job has no place of its own in the engine.
type jobDetails struct {
	manifestKey string
	tenant      string
	resources   int    // as many as the manifest had
	cursor      uint64 // offset of the first entry of the job's log (FB-060)
	traceID     string
}

func (e *jobDetails) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("manifest_key", e.manifestKey)
	o.Text("tenant", e.tenant)
	o.Int("resources", int64(e.resources))
	o.Int("cursor", int64(e.cursor))
	o.Text("trace_id", e.traceID)
	return o.End()
}

// decodeJobDetails reads what encode wrote; what cannot be read is left out.
func decodeJobDetails(j *job.Job) (e jobDetails) {
	for name, value := range strictjson.Members(j.Definition) {
		switch string(name) {
		case "manifest_key":
			e.manifestKey, _ = strictjson.String(value)
		case "tenant":
			e.tenant, _ = strictjson.String(value)
		case "resources":
			n, _ := strictjson.Int(value, 64)
			e.resources = int(n)
		case "cursor":
			n, _ := strictjson.Int(value, 64)
			e.cursor = uint64(n)
		case "trace_id":
			e.traceID, _ = strictjson.String(value)
		}
	}
	return e
}

// traceIDOf is the trace that a traceparent belongs to; empty for none.
func traceIDOf(carrier string) string {
	parent, _, _ := strings.Cut(carrier, " ")
	parts := strings.Split(parent, "-")
	if len(parts) != 4 {
		return ""
	}
	return parts[1]
}

// findJob reads the job that a path or a message names.
func (f *FetchBox) findJob(ctx context.Context, name string) (*job.Job, error) {
	key, ok := uuids.Parse(name)
	if !ok {
		return nil, &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such job"}
	}
	j, err := f.engine.Get(ctx, engineJobID(key))
	if job.IsKind(err, job.NotFound) {
		return nil, errNoJob(key)
	}
	return j, err
}
