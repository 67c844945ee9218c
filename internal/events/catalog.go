// Package events has the table of the events that operators may subscribe to (WH-002), and writes
// what they say. The types of the events of jobs are declared by the contracts; this package adds
// those of queues and schedules, and gives all of them a JSON Schema and an example.
//
//	change of a job ─► Types ─► webhook.Spec select ─► Data ─► webhook
//
// GET /admin/v1/webhook-events, the table of docs/webhooks.md and the check of patterns are made
// from All.
//
// # A new event
//
//   - One of a job, for operators' webhooks (decision 0088), is a row of eventTypes in machine.go
//     of its contract: causes, states and kind. A change with a new word needs a constant and its
//     meaning (contract/event.go). Callbacks of single jobs (decision 0094) get it too, those of
//     TaskFlow where they name it, others where its last word is in finalChanges
//     (contract/callback.go); a new word there is also in the texts
//     that list them: WH-005 of docs/contracts/admin.md, callbacks in openapi.yaml of the
//     contracts, and finalType of cmd/millrace/webhook_kill_test.go, whose typesOf has the words.
//   - One of no job is a row of eventsOfNoJob here, with its schema and example in schema.go. Who
//     makes it has the constant of its name (QueuePausedEvent in engine/feed.go, MissedEvent in
//     schedule/tick.go), and publishes an engine.FeedEvent by RecordWriter.PublishEvent,
//     Outcome.Published or, in the engine, unit.publishEvent, in the transaction of the change that
//     it is about. It has a JobType, as subscriptions select by the contract.
//   - Both are named again in docs/webhooks.md, whose test asks for them, and in WH-002 of
//     docs/contracts/admin.md; those of Relay, TaskFlow and ForgeRun and of no job also in
//     TestWebhookEvents of package admin, those of no job in catalog_test.go.
//     docs/reference/events.md is written by go test ./cmd/millrace -run TestReference -update.
//   - ForgeRun's clients have webhooks of their own, whose events doc.go of ForgeRun describes.
package events

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/webhook"
)

const (
	// maxResult and maxPayload bound the bodies of a job in an event, in bytes (WH-003).
	maxResult  = 16 << 10
	maxPayload = 64 << 10
)

// Catalog knows the events of the contracts of a node. It implements webhook.Source.
type Catalog struct {
	jobTypes []jobType
	byJob    map[string]*jobType
}

// jobType is one job type, with the events of its jobs.
type jobType struct {
	operator *contract.Operator
	machine  *job.Machine
	mayWait  bool // jobs depend on others
}

// New makes the catalog of contracts.
func New(contracts []*contract.Contract) *Catalog {
	c := &Catalog{byJob: map[string]*jobType{}}
	for _, one := range contracts {
		for i := range one.Operators {
			o := &one.Operators[i]
			isOf := func(t engine.JobType) bool { return t.Name == o.JobType }
			at := slices.IndexFunc(one.JobTypes, isOf)
			if at < 0 || len(o.Events) == 0 {
				continue
			}
			of := one.JobTypes[at]
			c.jobTypes = append(c.jobTypes, jobType{o, of.Machine, of.Graph})
		}
	}
	for i := range c.jobTypes {
		c.byJob[c.jobTypes[i].operator.JobType] = &c.jobTypes[i]
	}
	return c
}

// Types implements webhook.Source.
func (c *Catalog) Types(j *job.Job, ev job.Event) (types []string) {
	s := c.byJob[j.ID.JobType]
	if s == nil {
		return nil
	}
	for i := range s.operator.Events {
		if t := &s.operator.Events[i]; t.Is(j, ev) {
			types = append(types, t.Name)
		}
	}
	return types
}

// IsFinal implements webhook.Source.
func (c *Catalog) IsFinal(eventType string) bool { return contract.IsFinal(eventType) }

// About implements webhook.Source.
func (c *Catalog) About(j *job.Job) (name, kind string) {
	name = contract.PublicName(j.ID.JobType)
	if s := c.byJob[j.ID.JobType]; s != nil {
		kind = s.operator.KindOf(j)
	}
	return name, kind
}

// ReadsBodies implements webhook.Source. The end of a first run has no failure before it, and
// the change itself has its result.
func (c *Catalog) ReadsBodies(j *job.Job, ev job.Event) bool {
	o := c.byJob[j.ID.JobType].operator
	endsFirstRun := !ev.Run.IsZero() && j.Attempts <= 1 && j.FailedAttempts == 0
	return !endsFirstRun || o.Name != nil || o.State != nil || o.StateBefore != nil || o.Hide != nil
}

// Data implements webhook.Source: the item of the job (AD-011) and the facts about the change
// alone. What the contract hides from operators is in neither.
func (c *Catalog) Data(j *job.Job, ev job.Event) (data, payload []byte) {
	s, shown := c.byJob[j.ID.JobType], *j
	s.operator.HideSecrets(&shown)
	item := s.operator.Item(&shown, s.mayWait)
	if tr, ok := s.machine.Next(ev.Prev, ev.Cause); ok && tr.DeadLetter {
		item.Phase = contract.PhaseDead
	}
	o := strictjson.NewObject(make([]byte, 0, 1024+min(len(shown.Result), maxResult)))
	item.Write(&o, true)
	o.Optional("previous_state", s.operator.PreviousState(j, ev.Prev))
	o.Int("attempt", int64(j.Attempts))
	run := ""
	if !ev.Run.IsZero() {
		run = ev.Run.String()
	}
	o.Optional("run_id", run)
	writeBody(&o, "result", shown.Result, maxResult)
	p := strictjson.NewObject(nil)
	writeBody(&p, "payload", shown.Payload, maxPayload)
	members := p.End()
	return o.End(), members[1 : len(members)-1]
}

// writeBody writes a body of a job, and whether it is cut.
func writeBody(o *strictjson.Object, name string, body []byte, max int) {
	text, isCut := contract.ShownBody(body, max)
	if text == nil {
		o.Null(name)
	} else {
		o.Raw(name, text)
	}
	o.Bool(name+"_truncated", isCut)
}

// Type is a type of events.
type Type struct {
	Name    string
	Meaning string
	Schema  []byte // of the body, a JSON Schema
	Example []byte // a body
}

// eventsOfNoJob are the types that no contract declares: of all contracts, and of no kind of job.
var eventsOfNoJob = []Type{
	typeOfEvent(engine.QueuePausedEvent, "A queue was paused.", queueSchema, pausedExample),
	typeOfEvent(engine.QueueResumedEvent, "A queue was resumed.", queueSchema, resumedExample),
	typeOfEvent(schedule.MissedEvent, "A time of a schedule passed without its job.",
		scheduleSchema, missedExample),
}

// All returns all types, by name.
func (c *Catalog) All() (all []Type) {
	for i := range c.jobTypes {
		s := &c.jobTypes[i]
		for k := range s.operator.Events {
			all = append(all, c.typeOf(s, &s.operator.Events[k]))
		}
	}
	all = append(all, eventsOfNoJob...)
	slices.SortFunc(all, func(a, b Type) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Check refuses a pattern that means no type.
func (c *Catalog) Check(pattern string) error {
	var similar []string
	for _, t := range c.All() {
		if webhook.MatchType(pattern, t.Name) {
			return nil
		}
		similar = append(similar, likePattern(pattern, t.Name))
	}
	return refuse("events: %s means no type of events of this node, did you mean %q? GET "+
		"/admin/v1/webhook-events lists them", pattern, similar)
}

// likePattern returns a type with * where a pattern of as many words has it.
func likePattern(pattern, eventType string) string {
	given, words := strings.Split(pattern, "."), strings.Split(eventType, ".")
	if len(given) != len(words) {
		return eventType
	}
	for i := range words {
		if given[i] == "*" {
			words[i] = "*"
		}
	}
	return strings.Join(words, ".")
}

// CheckKind refuses a kind that no jobs have whose changes are events.
func (c *Catalog) CheckKind(kind string) error {
	var known []string
	for i := range c.jobTypes {
		o := c.jobTypes[i].operator
		known = append(known, o.Kinds...)
		if o.Kind != "" {
			known = append(known, o.Kind)
		}
	}
	switch {
	case slices.Contains(known, kind):
		return nil
	case len(known) == 0:
		return &job.Error{Kind: job.Invalid, Op: "event.check",
			Msg: "kinds: no jobs of this node have one"}
	}
	return refuse("kinds: no jobs of this node are of the kind %s, did you mean %q?", kind, known)
}

// refuse returns the error of a name that is none of those that are known. It names the nearest.
func refuse(format, name string, known []string) error {
	return &job.Error{Kind: job.Invalid, Op: "event.check",
		Msg: fmt.Sprintf(format, setting.Quote(name), setting.Nearest(name, known))}
}
