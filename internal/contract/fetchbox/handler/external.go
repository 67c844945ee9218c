package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/telemetry"
)

// The events of an External, one for each method of a Handler.
const (
	eventPrepare  = "prepare"
	eventTasks    = "tasks"
	eventAdjust   = "adjust"
	eventFinalize = "finalize"
)

// Events are the names of all events.
var Events = []string{eventPrepare, eventTasks, eventAdjust, eventFinalize}

// DefaultEvents are the events of a handler whose settings name none: Adjust is called before every
// download, and would start a command for each.
var DefaultEvents = []string{eventPrepare, eventTasks, eventFinalize}

// External is a handler outside of this program, which gets events as JSON (G-FB-46). Where it gets
// no event, or its answer is empty, it is as Default. docs/handlers.md describes events and
// answers.
type External struct {
	Default
	Program   external.Handler
	Events    []string // that it gets
	MaxAnswer int64    // bytes
	Log       *slog.Logger
}

// protocol is the version of events and answers. A change that a program could misunderstand gets
// another one.
const protocol = 1

// event is what a program gets. Its members are those that its method has as arguments.
type event struct {
	Version  int            `json:"version"`
	Event    string         `json:"event"`
	Job      *eventJob      `json:"job,omitempty"`
	Manifest *eventManifest `json:"manifest,omitempty"`
	Tasks    []Task         `json:"tasks,omitempty"`
	Summary  *eventSummary  `json:"summary,omitempty"`
}

// answer is what a program says. Error refuses the job or task, with a reason for its client.
type answer struct {
	Version  int            `json:"version"`
	Error    string         `json:"error"`
	Manifest *eventManifest `json:"manifest"`
	Tasks    *[]Task        `json:"tasks"`
}

type eventJob struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Tenant      string `json:"tenant,omitempty"`
	ManifestKey string `json:"manifest_key"`
	TraceID     string `json:"trace_id,omitempty"`
}

// eventManifest is a manifest in the form in which it is submitted. In an answer, members that are
// missing stay as they are.
type eventManifest struct {
	Version    string           `json:"manifest_version,omitempty"`
	Metadata   json.RawMessage  `json:"metadata,omitempty"`
	Attributes json.RawMessage  `json:"attributes,omitempty"`
	Resources  *[]eventResource `json:"resources,omitempty"`
}

type eventResource struct {
	ID      string            `json:"id"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
}

type eventSummary struct {
	Status     string          `json:"status"`
	Total      int             `json:"total"`
	Completed  int             `json:"completed"`
	Failed     int             `json:"failed"`
	CreatedAt  json.RawMessage `json:"created_at"`
	FinishedAt json.RawMessage `json:"settled_at"`
}

// Prepare implements Handler.
func (e *External) Prepare(ctx context.Context, j Job, m Manifest) (Manifest, error) {
	a, err := e.send(ctx, j, j.ID+"/"+eventPrepare, &event{Event: eventPrepare,
		Job: newEventJob(j), Manifest: newEventManifest(m)})
	if err != nil || a.Manifest == nil {
		return m, err
	}
	changed := a.Manifest
	if changed.Version != "" {
		m.Version = changed.Version
	}
	if changed.Metadata != nil {
		m.Metadata = changed.Metadata
	}
	if changed.Attributes != nil {
		m.Attributes = changed.Attributes
	}
	if changed.Resources != nil {
		m.Resources = make([]Resource, len(*changed.Resources))
		for i, r := range *changed.Resources {
			if err := checkID(r.ID); err != nil {
				return m, err
			}
			m.Resources[i] = Resource(r)
		}
	}
	return m, nil
}

// Tasks implements Handler.
func (e *External) Tasks(ctx context.Context, j Job, m Manifest) ([]Task, error) {
	a, err := e.send(ctx, j, j.ID+"/"+eventTasks, &event{Event: eventTasks,
		Job: newEventJob(j), Manifest: newEventManifest(m)})
	if err != nil {
		return nil, err
	}
	if a.Tasks == nil {
		return e.Default.Tasks(ctx, j, m)
	}
	for _, t := range *a.Tasks {
		if err := checkID(t.ResourceID); err != nil {
			return nil, err
		}
	}
	return *a.Tasks, nil
}

// checkID returns why the id of a resource is none that a client could have sent.
func checkID(id string) error {
	if n := utf8.RuneCountInString(id); n < 1 || n > 128 {
		return wrongAnswer("a resource has no id of 1 to 128 characters")
	}
	return nil
}

// wrongAnswer is the error of an answer that is none. It counts as a failure that may pass, as the
// client of the job cannot do anything about it.
func wrongAnswer(why string) error {
	return &UnavailableError{Reason: "the answer of the handler is wrong: " + why}
}

// Adjust implements Handler. An answer has the same tasks in the same order. Of each it may change
// the URL, headers, tags, proxy and storage; whose task it is stays what it was.
func (e *External) Adjust(ctx context.Context, tasks []Task) error {
	if len(tasks) == 0 {
		return nil
	}
	first := &tasks[0]
	id := first.JobID + "/" + eventAdjust
	if len(tasks) == 1 {
		id += "/" + Segment(first.ResourceID)
	}
	a, err := e.send(ctx, Job{ID: first.JobID, Type: first.JobType}, id,
		&event{Event: eventAdjust, Tasks: tasks})
	if err != nil || a.Tasks == nil {
		return err
	}
	if !slices.EqualFunc(tasks, *a.Tasks, func(is, was Task) bool {
		return is.ResourceID == was.ResourceID
	}) {
		return wrongAnswer("it does not have the same tasks")
	}
	for i, changed := range *a.Tasks {
		t := &tasks[i]
		t.URL, t.Headers, t.Tags = changed.URL, changed.Headers, changed.Tags
		t.Proxy, t.Storage = changed.Proxy, changed.Storage
	}
	return nil
}

// Finalize implements Handler.
func (e *External) Finalize(ctx context.Context, s Summary) error {
	_, err := e.send(ctx, s.Job, s.ID+"/"+eventFinalize, &event{Event: eventFinalize,
		Job: newEventJob(s.Job), Summary: &eventSummary{Status: s.Status, Total: s.Total,
			Completed: s.Completed, Failed: s.Failed,
			CreatedAt:  strictjson.AppendTime(nil, s.CreatedAt),
			FinishedAt: strictjson.AppendTime(nil, s.FinishedAt)}})
	return err
}

// send sends an event, unless the program does not get it, and reads the answer. id names what the
// program may get more than once. Its errors refuse, but for an UnavailableError.
func (e *External) send(ctx context.Context, j Job, id string, ev *event) (answer, error) {
	if !slices.Contains(e.Events, ev.Event) {
		return answer{}, nil
	}
	ev.Version = protocol
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(ev); err != nil {
		return answer{}, err
	}
	a, output, err := e.ask(ctx, &external.Call{ID: id, Body: body.Bytes(),
		Names: []external.Name{{Name: "Event", Value: ev.Event}, {Name: "Job-Id", Value: j.ID},
			{Name: "Job-Type", Value: j.Type}, {Name: "Contract", Value: "fetchbox"}}})
	e.log(ctx, j, ev, output, err)
	var failure *external.Failure
	switch {
	case ctx.Err() != nil:
		return answer{}, &UnavailableError{Reason: "the handler was not waited for"}
	case a.Error != "":
		return answer{}, errors.New(external.CleanText(a.Error))
	case errors.As(err, &failure) && failure.Retryable:
		return answer{}, &UnavailableError{Reason: failure.Message, Missing: failure.Missing}
	}
	return a, err
}

// ask makes a call and reads its answer. output is what a command has written to its standard
// error.
func (e *External) ask(ctx context.Context, c *external.Call) (a answer, output string, err error) {
	said, err := e.Program.Call(ctx, c)
	if err != nil {
		return answer{}, said.Log, err
	}
	a, err = e.read(said.Body)
	return a, said.Log, err
}

// read reads an answer; an empty one changes nothing.
func (e *External) read(text []byte) (a answer, err error) {
	text = strictjson.Trim(text)
	if len(text) == 0 {
		return answer{}, nil
	}
	if int64(len(text)) > e.MaxAnswer {
		return answer{}, wrongAnswer(fmt.Sprintf("it has more than %d bytes", e.MaxAnswer))
	}
	if err := strictjson.Check(text); err != nil {
		return answer{}, wrongAnswer(err.Error())
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		return answer{}, wrongAnswer(err.Error())
	}
	if a.Version != protocol {
		return answer{}, wrongAnswer(fmt.Sprintf("its version is %d, not %d", a.Version, protocol))
	}
	return a, nil
}

// log logs a call that failed, and at DEBUG what a command has written to its standard error.
func (e *External) log(ctx context.Context, j Job, ev *event, output string, err error) {
	level, message := slog.LevelDebug, "the standard error of a handler"
	attrs := []slog.Attr{slog.String(telemetry.JobID, j.ID), slog.String("job_type", j.Type),
		slog.String("event", ev.Event), slog.String("stderr", output)}
	if err != nil && ctx.Err() == nil {
		level, message = slog.LevelWarn, "a handler failed"
		attrs = append(attrs, slog.String(telemetry.ErrorMessage, err.Error()))
	}
	if output != "" || level == slog.LevelWarn {
		e.Log.LogAttrs(ctx, level, message, attrs...)
	}
}

func newEventJob(j Job) *eventJob {
	return &eventJob{ID: j.ID, Type: j.Type, Tenant: j.Tenant, ManifestKey: j.ManifestKey,
		TraceID: j.TraceID}
}

func newEventManifest(m Manifest) *eventManifest {
	resources := make([]eventResource, len(m.Resources))
	for i, r := range m.Resources {
		resources[i] = eventResource(r)
	}
	return &eventManifest{Version: m.Version, Metadata: m.Metadata, Attributes: m.Attributes,
		Resources: &resources}
}
