package taskflow

import (
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// appendJob writes a job, whose definition is d, with the members of the document and next_run_at
// (G-TF-13).
func appendJob(o *strictjson.Object, j *job.Job, d *definition) {
	o.Text("id", j.ID.Key)
	o.Text("name", d.name)
	o.Text("queue", j.Queue)
	o.Raw("payload", j.Payload)
	o.Int("priority", int64(j.Priority))
	o.Text("status", string(j.State))
	o.Texts("dependencies", d.dependencies)
	p := policyOf(j)
	o.Object("retry_policy", p.append)
	o.Time("created_at", j.CreatedAt)
	o.Time("updated_at", j.UpdatedAt)
	o.Int("attempt_count", int64(attemptCount(j)))
	o.Time("next_run_at", nextRunAt(j))
	if d.rerunOf != "" {
		o.Text("rerun_of", d.rerunOf)
	}
	appendCallback(o, j)
}

// appendStoredJob is appendJob for a job that was read, with its definition, from the store.
func appendStoredJob(o *strictjson.Object, j *job.Job) {
	d := decodeDefinition(j.Definition)
	appendJob(o, j, &d)
}

// appendOutcome adds the result of the attempt that succeeded and the error of the last one that
// failed, as far as there are any. A job that was retried may have both.
func appendOutcome(o *strictjson.Object, j *job.Job) {
	if j.Result != nil {
		o.Raw("result", j.Result)
	}
	if j.Failure != nil {
		o.Raw("last_error", j.Failure)
	}
}

// appendCopy adds the id of the job that a rerun has made of this one, if any (RT-001).
func appendCopy(o *strictjson.Object, id string) {
	if id != "" {
		o.Text("rerun_as", id)
	}
}

// nextRunAt returns when a job that waits for its retry may be claimed, or zero if it does not
// wait. Such a job is READY for clients, and its phase is waiting (TF-067, G-TF-13).
func nextRunAt(j *job.Job) time.Time {
	if j.State == Ready && j.Phase == job.Waiting {
		return j.DueAt
	}
	return time.Time{}
}

// definition holds the members of a job for which the engine has no fields.
type definition struct {
	name         string
	dependencies []string
	rerunOf      string // the id of the job of which this one is a copy
}

// encode returns the members as JSON, which the store keeps as the definition of the job.
func (d *definition) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 64+len(d.name)+40*len(d.dependencies)))
	o.Text("name", d.name)
	o.Texts("dependencies", d.dependencies)
	if d.rerunOf != "" {
		o.Text("rerun_of", d.rerunOf)
	}
	return o.End()
}

// decodeDefinition is the inverse of encode; a member that cannot be read stays empty.
func decodeDefinition(raw []byte) (d definition) {
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "name":
			d.name, _ = strictjson.String(value)
		case "dependencies":
			for _, element := range strictjson.Elements(value) {
				id, _ := strictjson.String(element)
				d.dependencies = append(d.dependencies, id)
			}
		case "rerun_of":
			d.rerunOf, _ = strictjson.String(value)
		}
	}
	return d
}
