package admin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// itemMembers are the members of an item (AD-011).
const itemMembers = "attempts children contract created_at due_at error failures id kind " +
	"lease_until number open_dependencies owner parent phase priority queue run_limit settled_at " +
	"size started_at state updated_at worker"

// item is an item as it is answered. Members that are missing stay so.
type item map[string]any

// wantItem checks that an item has all of its members, and some of their values.
func wantItem(t *testing.T, what string, got item, want item) {
	t.Helper()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(got)),
		func(name string) bool { return name == "actions" || name == "made_from" })
	if text := strings.Join(names, " "); text != itemMembers {
		t.Errorf("AD-011 %s has the members %s", what, text)
	}
	for name, value := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(value) {
			t.Errorf("AD-011 %s: %s is %v, want %v", what, name, got[name], value)
		}
	}
}

// sampleOf returns the sample of a dry run on the jobs of a queue.
func (w *jobsWorld) sampleOf(t *testing.T, contract, queue string) []item {
	t.Helper()
	return testkit.DecodeReply[struct{ Sample []item }](t, w.post(t, "/admin/v1/bulk",
		fmt.Sprintf(`{"action":"run-now","dry_run":true,"filter":{"contract":%q,"queue":%q}}`,
			contract, queue)).WantStatus(t, 200)).Sample
}

// AD-011, AD-020: an item has all members, with null where one has no meaning, and the words of its
// contract. What acts on a job answers one, and a dry run.
func TestJobItem(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		start := w.clock.Now()
		stamp := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"q","priority":7,"retry_policy":
			{"max_attempts":2,"backoff_strategy":"FIXED","base_delay_seconds":60,"max_delay_seconds":60}}`, "")
		w.submitJob(t, "taskflow", fmt.Sprintf(
			`{"name":"b","queue":"q","dependencies":[%q]}`, first.ID), "")
		long := "ä" + strings.Repeat("x", 300)
		w.clock.Advance(time.Second)
		failure, _ := json.Marshal(map[string]string{"error": "\n" + long + "\nmore"})
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Failed, Failure: failure})
		w.clock.Advance(time.Hour)
		run := w.claim(t, "taskflow")
		sample := w.sampleOf(t, "taskflow", "q")
		wantItem(t, "a job of TaskFlow that runs", sample[0], item{"number": first.Number,
			"contract": "taskflow", "queue": "q", "id": first.ID, "kind": nil, "state": "RUNNING",
			"phase": "leased", "priority": 7, "attempts": 2, "failures": 1, "run_limit": 2,
			"created_at": stamp(start), "started_at": stamp(w.clock.Now()), "settled_at": nil,
			"lease_until": stamp(w.clock.Now().Add(time.Minute)), "worker": "w", "owner": nil,
			"parent": nil, "children": nil, "open_dependencies": 0, "size": nil,
			"error": string([]rune(long)[:200])})
		wantItem(t, "its dependent", sample[1], item{"state": "PENDING", "phase": "waiting",
			"open_dependencies": 1, "worker": nil, "started_at": nil, "lease_until": nil,
			"error": nil, "attempts": 0})
		w.clock.Advance(time.Second)
		w.end(t, run, engine.Outcome{On: job.Failed, Failure: []byte(`not JSON`)})
		wantItem(t, "a job that was given up", w.sampleOf(t, "taskflow", "q")[0], item{
			"state": "FAILED", "phase": "dead", "settled_at": stamp(w.clock.Now()),
			"lease_until": nil, "error": "not JSON", "failures": 2})
		mended := w.submitJob(t, "taskflow", `{"name":"c","queue":"mended","retry_policy":
			{"max_attempts":2,"backoff_strategy":"FIXED","base_delay_seconds":1,
			"max_delay_seconds":1}}`, "")
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Failed, Failure: failure,
			Delay: time.Second})
		w.clock.Advance(time.Minute)
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Succeeded})
		wantItem(t, "a job that has succeeded after a failure", w.sampleOf(t, "taskflow",
			"mended")[0], item{"number": mended.Number, "error": nil, "failures": 1})
		deadLetter := w.deadLetters(t, "", 1).Items[0]
		w.do(t, w.api.Token(), "DELETE", fmt.Sprintf("/admin/v1/dead-letters/%d", deadLetter.ID), "").
			WantStatus(t, 204)
		wantItem(t, "a job with a discarded dead letter", w.sampleOf(t, "taskflow", "q")[0],
			item{"phase": "done"})

		answered := testkit.DecodeReply[item](t, w.act(t, w.failRun(t).Number, "retry").
			WantStatus(t, 200))
		wantItem(t, "a job of ForgeRun", answered, item{"contract": "forgerun",
			"queue": "default", "kind": "SUCCESS_FAST", "state": "QUEUED", "phase": "ready",
			"owner": w.client, "priority": nil, "run_limit": 2, "error": nil,
			"open_dependencies": nil})

		r := w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":null,
			"payload":1}`, "")
		wantItem(t, "a job of Relay", w.sampleOf(t, "relay", "q")[0], item{"id": "1",
			"state": "queued", "kind": nil, "run_limit": nil, "priority": nil})
		wantItem(t, "a job that was deleted", testkit.DecodeReply[item](t,
			w.act(t, r.Number, "delete").WantStatus(t, 200)),
			item{"number": r.Number, "state": "gone", "id": "1"})
	})
}
