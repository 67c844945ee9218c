package taskflow

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
)

// appendJob writes a job with the members of the document and next_run_at
// (G-TF-13).
func appendJob(o *object, j *job.Job) {
	d := decodeDefinition(j.Definition)
	o.text("id", j.ID.Key)
	o.text("name", d.name)
	o.text("queue", j.Queue)
	o.raw("payload", string(j.Payload))
	o.number("priority", j.Priority)
	o.text("status", string(j.State))
	o.texts("dependencies", d.dependencies)
	p := policyOf(j)
	o.object("retry_policy", p.append)
	o.time("created_at", j.CreatedAt)
	o.time("updated_at", j.UpdatedAt)
	o.number("attempt_count", attemptCount(j))
	o.time("next_run_at", nextRunAt(j))
}

// nextRunAt is when a job that waits to be tried again may be claimed, zero where
// it does not.
func nextRunAt(j *job.Job) time.Time {
	if j.State == Ready && j.Phase == job.Waiting {
		return j.DueAt
	}
	return time.Time{}
}

func (p *Policy) append(o *object) {
	o.number("max_attempts", p.MaxAttempts)
	o.text("backoff_strategy", p.Strategy.String())
	o.number("base_delay_seconds", p.BaseDelay)
	o.number("max_delay_seconds", p.MaxDelay)
}

// kind is the policy without its attempts, as it is kept in the kind of a job.
func (p *Policy) kind() string {
	return p.Strategy.String() + " " + strconv.Itoa(p.BaseDelay) + " " + strconv.Itoa(p.MaxDelay)
}

// policyOf reads the policy of a job; what cannot be read is as usual.
func policyOf(j *job.Job) Policy {
	p := usualPolicy
	p.MaxAttempts = j.RunLimit
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
	o := begin(make([]byte, 0, 64+len(d.name)+40*len(d.dependencies)))
	o.text("name", d.name)
	o.texts("dependencies", d.dependencies)
	return o.end()
}

// decodeDefinition reads what encode wrote; what cannot be read is left out.
func decodeDefinition(raw []byte) (d definition) {
	for name, value := range jsontext.Members(raw) {
		switch string(name) {
		case "name":
			d.name, _ = jsontext.String(value)
		case "dependencies":
			for _, element := range jsontext.Elements(value) {
				id, _ := jsontext.String(element)
				d.dependencies = append(d.dependencies, id)
			}
		}
	}
	return d
}

// object builds a JSON object.
type object struct{ b []byte }

func begin(b []byte) object { return object{append(b, '{')} }

func (o *object) end() []byte { return append(o.b, '}') }

func (o *object) name(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = jsontext.AppendString(o.b, name)
	o.b = append(o.b, ':')
}

func (o *object) text(name, value string) {
	o.name(name)
	o.b = jsontext.AppendString(o.b, value)
}

func (o *object) raw(name, value string) {
	o.name(name)
	o.b = append(o.b, value...)
}

func (o *object) number(name string, value int) { o.raw(name, strconv.Itoa(value)) }

// time writes null for the zero time.
func (o *object) time(name string, value time.Time) {
	if value.IsZero() {
		o.raw(name, "null")
		return
	}
	o.name(name)
	o.b = jsontext.AppendTime(o.b, value)
}

func (o *object) object(name string, fill func(*object)) {
	o.name(name)
	inner := begin(o.b)
	fill(&inner)
	o.b = inner.end()
}

// array writes a member that is an array of n objects.
func (o *object) array(name string, n int, fill func(i int, o *object)) {
	o.name(name)
	o.b = append(o.b, '[')
	for i := range n {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		inner := begin(o.b)
		fill(i, &inner)
		o.b = inner.end()
	}
	o.b = append(o.b, ']')
}

// texts writes a member that is an array of strings.
func (o *object) texts(name string, values []string) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = jsontext.AppendString(o.b, v)
	}
	o.b = append(o.b, ']')
}
