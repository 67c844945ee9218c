package taskflow

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// appendJob writes a job with the members of the document and next_run_at
// (G-TF-13).
func appendJob(o *strictjson.Object, j *job.Job) {
	d := decodeDefinition(j.Definition)
	o.Text("id", j.ID.Key)
	o.Text("name", d.name)
	o.Text("queue", j.Queue)
	o.Raw("payload", j.Payload)
	o.Int("priority", int64(j.Priority))
	o.Text("status", string(j.State))
	o.Texts("dependencies", d.dependencies)
	p := decodePolicy(j)
	o.Object("retry_policy", p.append)
	o.Time("created_at", j.CreatedAt)
	o.Time("updated_at", j.UpdatedAt)
	o.Int("attempt_count", int64(attemptCount(j)))
	o.Time("next_run_at", nextRunAt(j))
}

// appendOutcome adds what came of the runs of a job so far: the result of the one
// that ended well, and why the last one that said so failed. Either is missing where
// there is none.
func appendOutcome(o *strictjson.Object, j *job.Job) {
	if j.Result != nil {
		o.Raw("result", j.Result)
	}
	if j.Failure != nil {
		o.Raw("last_error", j.Failure)
	}
}

// nextRunAt is when a job that waits to be tried again may be claimed, zero where
// it does not.
func nextRunAt(j *job.Job) time.Time {
	if j.State == Ready && j.Phase == job.Waiting {
		return j.DueAt
	}
	return time.Time{}
}

func (p *Policy) append(o *strictjson.Object) {
	o.Int("max_attempts", int64(p.MaxAttempts))
	o.Text("backoff_strategy", p.Strategy.String())
	o.Int("base_delay_seconds", int64(p.BaseDelay))
	o.Int("max_delay_seconds", int64(p.MaxDelay))
}

// kind is the policy without its attempts, as it is kept in the kind of a job.
func (p *Policy) kind() string {
	return p.Strategy.String() + " " + strconv.Itoa(p.BaseDelay) + " " + strconv.Itoa(p.MaxDelay)
}

// decodePolicy reads the policy of a job; what cannot be read is as usual.
func decodePolicy(j *job.Job) Policy {
	p := defaultPolicy
	p.MaxAttempts = j.MaxAttempts
	words := strings.Fields(j.Kind)
	if len(words) != 3 {
		return p
	}
	strategy, known := job.ParseStrategy(words[0])
	base, baseErr := strconv.Atoi(words[1])
	limit, limitErr := strconv.Atoi(words[2])
	if known && baseErr == nil && limitErr == nil {
		p.Strategy, p.BaseDelay, p.MaxDelay = strategy, base, limit
	}
	return p
}

// definition is what of a job has no place of its own in the engine.
type definition struct {
	name         string
	dependencies []string
}

func (d *definition) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 64+len(d.name)+40*len(d.dependencies)))
	o.Text("name", d.name)
	o.Texts("dependencies", d.dependencies)
	return o.End()
}

// decodeDefinition reads what encode wrote; what cannot be read is left out.
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
		}
	}
	return d
}
