package handler_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/testkit"
)

// program is a program that answers every event with the same.
type program struct {
	answer string
	err    error
	calls  []*external.Call
}

func (p *program) Call(_ context.Context, c *external.Call) (external.Answer, error) {
	p.calls = append(p.calls, c)
	return external.Answer{Body: []byte(p.answer), Log: "a line"}, p.err
}

// handler returns the handler of the program, which gets all events.
func (p *program) handler() *handler.External {
	return &handler.External{Program: p, Events: handler.Events, MaxAnswer: 1000,
		Log: slog.New(slog.DiscardHandler)}
}

func theManifest() handler.Manifest {
	return handler.Manifest{Version: "v1", Metadata: []byte(`{"a":1}`),
		Resources: []handler.Resource{{ID: "a", URL: "http://a/?x=1&y=<2>",
			Tags: map[string]string{"k": "v"}}, {ID: "b", URL: "http://b/"}}}
}

func someTasks() []handler.Task {
	return []handler.Task{{JobID: "job", JobType: "t", ResourceID: "a", URL: "http://a/",
		Attempt: 1}, {JobID: "job", JobType: "t", ResourceID: "b", URL: "http://b/", Attempt: 1}}
}

// callAll calls all methods and returns the first error.
func callAll(t *testing.T, h *handler.External) error {
	t.Helper()
	ctx := t.Context()
	m, err := h.Prepare(ctx, theJob, theManifest())
	if err != nil {
		return err
	}
	tasks, err := h.Tasks(ctx, theJob, m)
	if err != nil {
		return err
	}
	if err := h.Adjust(ctx, someTasks()[:len(tasks)]); err != nil {
		return err
	}
	return h.Finalize(ctx, handler.Summary{Job: theJob, Status: "failed", Total: 2, Completed: 1,
		Failed: 1, CreatedAt: testkit.StartTime, FinishedAt: testkit.StartTime.Add(time.Second)})
}

// G-FB-46 Events as they are sent. An empty answer changes nothing.
func TestExternalEvents(t *testing.T) {
	t.Parallel()
	p := &program{}
	h := p.handler()
	m, err := h.Prepare(t.Context(), theJob, theManifest())
	if err != nil || !reflect.DeepEqual(m, theManifest()) {
		t.Errorf("got %+v, %v", m, err)
	}
	if tasks, err := h.Tasks(t.Context(), theJob, m); err != nil || len(tasks) != 2 ||
		tasks[1].URL != "http://b/" {
		t.Errorf("got %+v, %v", tasks, err)
	}
	tasks := someTasks()
	if err := h.Adjust(t.Context(), tasks); err != nil || !reflect.DeepEqual(tasks, someTasks()) {
		t.Errorf("got %+v, %v", tasks, err)
	}
	if err := h.Adjust(t.Context(), tasks[1:]); err != nil {
		t.Error(err)
	}
	p.calls = p.calls[:4]
	if err := callAll(t, h); err != nil {
		t.Error(err)
	}
	const (
		job      = `"job":{"id":"job","type":"t","tenant":"acme","manifest_key":"s3://b/m","trace_id":"trace"}`
		manifest = `"manifest":{"manifest_version":"v1","metadata":{"a":1},"resources":[` +
			`{"id":"a","url":"http://a/?x=1&y=<2>","tags":{"k":"v"}},{"id":"b","url":"http://b/"}]}`
		taskB = `{"job_id":"job","job_type":"t","resource_id":"b","url":"http://b/","headers":null,"tags":null,"attempt":1}`
	)
	for i, want := range map[int]string{
		0: `{"version":1,"event":"prepare",` + job + `,` + manifest + `}`,
		1: `{"version":1,"event":"tasks",` + job + `,` + manifest + `}`,
		3: `{"version":1,"event":"adjust","tasks":[` + taskB + `]}`,
		7: `{"version":1,"event":"finalize",` + job + `,"summary":{"status":"failed","total":2,` +
			`"completed":1,"failed":1,"created_at":"2026-03-01T12:00:00Z","settled_at":"2026-03-01T12:00:01Z"}}`,
	} {
		if got := strings.TrimSpace(string(p.calls[i].Body)); got != want {
			t.Errorf("call %d is\n%s, want\n%s", i, got, want)
		}
	}
	names := p.calls[3].Names
	if p.calls[3].ID != "job/adjust/b" || p.calls[0].ID != "job/prepare" ||
		names[0] != (external.Name{Name: "Event", Value: "adjust"}) ||
		names[1].Value != "job" || names[2].Value != "t" {
		t.Errorf("got %+v", p.calls[3])
	}

	p = &program{answer: "nonsense"}
	h = p.handler()
	h.Events = nil
	if err := callAll(t, h); err != nil || len(p.calls) > 0 {
		t.Errorf("a program that gets no events: %d calls, %v", len(p.calls), err)
	}
}

// G-FB-46 What answers change.
func TestExternalAnswers(t *testing.T) {
	t.Parallel()
	h := (&program{answer: `{"version":1,"manifest":{"resources":[{"id":"c","url":"http://c/"}],"attributes":{"n":2}}}`}).handler()
	m, err := h.Prepare(t.Context(), theJob, theManifest())
	if err != nil || len(m.Resources) != 1 || m.Resources[0].ID != "c" || m.Version != "v1" ||
		string(m.Attributes) != `{"n":2}` || string(m.Metadata) != `{"a":1}` {
		t.Errorf("got %+v, %v", m, err)
	}
	h = (&program{answer: ` {"version":1,"tasks":[]} `}).handler()
	if tasks, err := h.Tasks(t.Context(), theJob, m); err != nil || len(tasks) != 0 {
		t.Errorf("got %+v, %v", tasks, err)
	}
	h = (&program{answer: `{"version":1,"tasks":[{"resource_id":"a","url":"http://c/","job_id":"another",` +
		`"attempt":9,"headers":{"X":"y"},"storage":{"key":"k"}}]}`}).handler()
	tasks := someTasks()[:1]
	want := someTasks()[0]
	want.URL, want.Headers = "http://c/", map[string]string{"X": "y"}
	want.Storage = &handler.Storage{Key: "k"}
	if err := h.Adjust(t.Context(), tasks); err != nil || !reflect.DeepEqual(tasks[0], want) {
		t.Errorf("got %+v, %v, want %+v", tasks, err, want)
	}
}

// G-FB-46 Who is at fault where there is no answer: the client, who gets the reason, or nobody that
// the client knows, so that the submit may be repeated.
func TestExternalFailures(t *testing.T) {
	t.Parallel()
	final := &external.Failure{Type: "exit", Message: "bad (exit status 65)"}
	passing := &external.Failure{Type: "timeout", Message: "too slow", Retryable: true}
	missing := &external.Failure{Type: "exit", Message: "not there", Retryable: true, Missing: true}
	for name, tt := range map[string]struct {
		program     program
		want        string
		unavailable bool
	}{
		"a refusal": {program{answer: `{"version":1,"error":"no more than 2\u0000"}`}, "no more than 2\uFFFD", false},
		"final":     {program{err: final}, "bad (exit status 65)", false},
		"passing":   {program{err: passing}, "too slow", true},
		"missing":   {program{err: missing}, "not there", true},
		"no JSON":   {program{answer: "Traceback"}, "the answer of the handler is wrong", true},
		"no UTF-8":  {program{answer: "{\"version\":1,\"error\":\"\xff\"}"}, "is wrong", true},
		"two":       {program{answer: `{"version":1}{"version":1}`}, "is wrong", true},
		"a version": {program{answer: `{"version":2}`}, "its version is 2, not 1", true},
		"none":      {program{answer: `{}`}, "its version is 0, not 1", true},
		"a misspelt member": {program{answer: `{"version":1,"task":[]}`},
			`unknown field "task"`, true},
		"another type": {program{answer: `{"version":1,"tasks":{}}`}, "is wrong", true},
		"too long": {program{answer: `{"version":1,"error":"` + strings.Repeat("x", 1000) + `"}`},
			"more than 1000 bytes", true},
		"no id": {program{answer: `{"version":1,"tasks":[{"url":"http://a/"}]}`},
			"no id of 1 to 128 characters", true},
		"no id in a manifest": {program{answer: `{"version":1,"manifest":{"resources":[{"url":"x"}]}}`},
			"no id of 1 to 128 characters", true},
		"other tasks": {program{answer: `{"version":1,"tasks":[{"resource_id":"x","url":"http://a/"}]}`},
			"does not have the same tasks", true},
	} {
		err := callAll(t, tt.program.handler())
		var unavailable *handler.UnavailableError
		isUnavailable := errors.As(err, &unavailable)
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			isUnavailable != tt.unavailable {
			t.Errorf("%s: got %v (%v), want %s (%v)", name, err, isUnavailable, tt.want,
				tt.unavailable)
		}
		if isUnavailable && unavailable.Missing != (name == "missing") {
			t.Errorf("%s: got %+v", name, unavailable)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&program{err: context.Canceled}).handler().Prepare(ctx, theJob, theManifest())
	var unavailable *handler.UnavailableError
	if !errors.As(err, &unavailable) {
		t.Errorf("a request that has ended: %v", err)
	}
}
