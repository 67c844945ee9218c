package events_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/job"
)

// machine is the machine of a contract with two sorts of words: the machine has some, clients
// others.
var machine = job.MustMachine(map[job.State]job.Phase{"in": job.Ready, "on": job.Leased,
	"out": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "in"},
	{From: "in", On: job.Claimed, To: "on"},
	{From: "on", On: job.Succeeded, To: "out"},
	{From: "on", On: job.FailedForGood, To: job.StateNone, DeadLetter: true},
	{From: "on", On: job.Expired, To: "in"},
})

func newCatalog() *events.Catalog {
	return events.New([]*contract.Contract{{Name: "x", JobTypes: []engine.JobType{
		{Name: "x", Machine: machine, Graph: true}, {Name: "x.part", Machine: machine}},
		Operators: []contract.Operator{
			{JobType: "x",
				State: func(j *job.Job) string { return strings.ToUpper(string(j.State)) },
				Hide:  func(j *job.Job) { j.Payload = []byte(`"hidden"`) },
				Kinds: []string{"special", "usual"},
				Events: []contract.EventType{
					contract.JobEvent("x", contract.Submitted).When(job.Submitted),
					contract.JobEvent("x", contract.Completed).To("out"),
					contract.JobEvent("x", contract.Dead).When(job.FailedForGood),
					{Name: "x.special.done", Kind: "special", States: []job.State{"out"},
						Meaning: "A special job is done."},
				}},
			{JobType: "x.part"},
		}}})
}

// WH-002: a change is an event of all types that it fits, by cause, states and kind, and mostly of
// none.
func TestTypes(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	for _, one := range []struct {
		contract, kind string
		ev             job.Event
		want           string
	}{
		{"x", "", job.Event{Cause: job.Submitted, Next: "in"}, "x.job.submitted"},
		{"x", "", job.Event{Cause: job.Claimed, Prev: "in", Next: "on"}, ""},
		{"x", "", job.Event{Cause: job.Succeeded, Prev: "on", Next: "out"}, "x.job.completed"},
		{"x", "special", job.Event{Cause: job.Succeeded, Prev: "on", Next: "out"},
			"x.job.completed x.special.done"},
		{"x", "", job.Event{Cause: job.FailedForGood, Prev: "on"}, "x.job.dead"},
		{"x.part", "", job.Event{Cause: job.Submitted, Next: "in"}, ""},
		{"unknown", "", job.Event{Cause: job.Submitted, Next: "in"}, ""},
	} {
		j := &job.Job{ID: job.ID{JobType: one.contract}, Kind: one.kind}
		if got := strings.Join(c.Types(j, one.ev), " "); got != one.want {
			t.Errorf("WH-002 %s %s %s: %q, want %q", one.contract, one.kind, one.ev.Cause, got,
				one.want)
		}
	}
}

// members decodes the members of a JSON object.
func members(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return all
}

// WH-003: the data of an event is the item of the job with what is known of the change; a result
// beyond 16 KiB is cut, and the payload apart and without secrets.
func TestData(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	j := &job.Job{ID: job.ID{JobType: "x", Key: "k"}, Seq: 7, Queue: "q", State: "out",
		Phase: job.Done, Attempts: 2, Payload: []byte(`{"secret":1}`),
		Result: []byte(`{"rows":` + strings.Repeat("1", 16<<10) + `}`)}
	ev := job.Event{Cause: job.Succeeded, Prev: "on", Next: "out", Run: job.NewRunID(7, [16]byte{1})}
	data, payload := c.Data(j, ev)
	got := members(t, data)
	for name, want := range map[string]any{"number": 7.0, "id": "k", "state": "OUT",
		"previous_state": "ON", "attempt": 2.0, "phase": "done", "run_id": ev.Run.String(),
		"result_truncated": true, "error": nil, "open_dependencies": 0.0} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("WH-003 %s is %v, want %v", name, value, want)
		}
	}
	if text, _ := got["result"].(string); len(text) != 16<<10 {
		t.Errorf("WH-003 the result has %d bytes", len(text))
	}
	if string(payload) != `"payload":"hidden","payload_truncated":false` ||
		strings.Contains(string(data), "payload") {
		t.Errorf("WH-003 the payload is %s", payload)
	}
	if string(j.Payload) != `{"secret":1}` {
		t.Error("the job itself was changed")
	}
	j.State, j.Result, j.Failure = job.StateNone, []byte("7"), []byte(`{"error":"gone wrong"}`)
	data, _ = c.Data(j, job.Event{Cause: job.FailedForGood, Prev: "on"})
	for name, want := range map[string]any{"state": "gone", "phase": "dead", "error": "gone wrong",
		"result": 7.0, "result_truncated": false, "run_id": nil} {
		if value, there := members(t, data)[name]; !there || value != want {
			t.Errorf("WH-003 %s is %v, want %v", name, value, want)
		}
	}
}

// WH-004: stored bodies are read for an event only where it says something of them: of a contract
// that shows none, not for the end of a first run, whose data is the same without them.
func TestReadsBodies(t *testing.T) {
	t.Parallel()
	plain := events.New([]*contract.Contract{{Name: "y", JobTypes: []engine.JobType{
		{Name: "y", Machine: machine}}, Operators: []contract.Operator{{JobType: "y",
		Events: []contract.EventType{contract.JobEvent("y", contract.Completed).To("out")}}}}})
	ended := job.Event{Cause: job.Succeeded, Prev: "on", Next: "out",
		Run: job.NewRunID(7, [16]byte{1})}
	canceled := job.Event{Cause: job.Canceled, Prev: "in", Next: "out"}
	for _, tt := range []struct {
		name    string
		catalog *events.Catalog
		j       job.Job
		ev      job.Event
		want    bool
	}{
		{"a first run", plain, job.Job{ID: job.ID{JobType: "y"}, Attempts: 1}, ended, false},
		{"a second run", plain, job.Job{ID: job.ID{JobType: "y"}, Attempts: 2}, ended, true},
		{"a run after a failure", plain, job.Job{ID: job.ID{JobType: "y"}, Attempts: 1,
			FailedAttempts: 1}, ended, true},
		{"no run", plain, job.Job{ID: job.ID{JobType: "y"}}, canceled, true},
		{"a contract that hides something", newCatalog(), job.Job{ID: job.ID{JobType: "x"},
			Attempts: 1}, ended, true},
	} {
		if got := tt.catalog.ReadsBodies(&tt.j, tt.ev); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	j := &job.Job{ID: job.ID{JobType: "y", Key: "k"}, State: "out", Phase: job.Done, Attempts: 1,
		Result: []byte("7")}
	without, _ := plain.Data(j, ended)
	j.Definition, j.Progress = []byte(`{"a":1}`), []byte(`"half"`)
	if with, _ := plain.Data(j, ended); string(with) != string(without) {
		t.Errorf("with all bodies the data is %s, without %s", with, without)
	}
}

// WH-002: each type has a schema, and an example with the members that it names, of the types that
// it names.
func TestAll(t *testing.T) {
	t.Parallel()
	var names []string
	for _, one := range newCatalog().All() {
		names = append(names, one.Name)
		schema, example := members(t, one.Schema), members(t, one.Example)
		properties := schema["properties"].(map[string]any)
		if example["type"] != one.Name || one.Meaning == "" ||
			properties["type"].(map[string]any)["const"] != one.Name {
			t.Errorf("WH-002 %s: %s", one.Name, one.Example)
		}
		data := properties["data"].(map[string]any)
		values := example["data"].(map[string]any)
		known := data["properties"].(map[string]any)
		for name := range values {
			if known[name] == nil {
				t.Errorf("WH-002 %s: the schema does not know %s", one.Name, name)
			}
		}
		for _, required := range data["required"].([]any) {
			value, there := values[required.(string)]
			if !there {
				t.Errorf("WH-002 %s: the example lacks %v", one.Name, required)
			}
			wantType(t, one.Name+" "+required.(string), known[required.(string)], value)
		}
	}
	want := "queue.paused queue.resumed schedule.missed x.job.completed x.job.dead " +
		"x.job.submitted x.special.done"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("WH-002 the types are %s, want %s", got, want)
	}
}

// wantType checks that a value has a type of its schema.
func wantType(t *testing.T, what string, schema, value any) {
	t.Helper()
	var types []string
	switch named := schema.(map[string]any)["type"].(type) {
	case string:
		types = []string{named}
	case []any:
		for _, one := range named {
			types = append(types, one.(string))
		}
	default:
		return // anything
	}
	is := "null"
	switch value.(type) {
	case string:
		is = "string"
	case float64:
		is = "integer"
	case bool:
		is = "boolean"
	}
	if !slices.Contains(types, is) {
		t.Errorf("WH-002 %s is %v, which is none of %v", what, value, types)
	}
}

// WH-001: a kind that no jobs have is refused with the one that was meant.
func TestCheckKind(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	if err := c.CheckKind("special"); err != nil {
		t.Error(err)
	}
	if err := c.CheckKind("specal"); !job.IsKind(err, job.Invalid) ||
		!strings.Contains(err.Error(), `"specal", did you mean "special"?`) {
		t.Errorf("WH-001 %v", err)
	}
	none := events.New(nil)
	if err := none.CheckKind("special"); !job.IsKind(err, job.Invalid) {
		t.Errorf("WH-001 %v", err)
	}
}

// WH-002: a pattern that means nothing is refused with a way to find out, and with what was meant.
func TestCheck(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	for _, pattern := range []string{"*", "x.*", "*.completed", "x.job.submitted", "queue.*"} {
		if err := c.Check(pattern); err != nil {
			t.Errorf("WH-002 %s: %v", pattern, err)
		}
	}
	for pattern, meant := range map[string]string{"": "", "x": "", "y.*": "",
		"x.job.complete": "x.job.completed", "*.job.submited": "*.job.submitted",
		"queue.pause": "queue.paused"} {
		if err := c.Check(pattern); !job.IsKind(err, job.Invalid) ||
			!strings.Contains(err.Error(), "webhook-events") ||
			!strings.Contains(err.Error(), `did you mean "`+meant) {
			t.Errorf("WH-002 %s: %v", pattern, err)
		}
	}
}
