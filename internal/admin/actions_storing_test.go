package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// fenced fails unless the run of a job that an operator has released is lost.
func (w *allWorld) fenced(t *testing.T, run engine.Run) {
	t.Helper()
	if _, err := w.engine.Heartbeat(t.Context(), run, nil); !job.IsKind(err, job.RunLost) {
		t.Errorf("AD-016 the run of a released job is not fenced: %v", err)
	}
}

// wantReplayed fails unless the newest dead letter of a contract was replayed as a job, and none is
// open.
func (w *jobsWorld) wantReplayed(t *testing.T, contract string, as int64) {
	t.Helper()
	all := get[deadLetters](t, w.world, "/admin/v1/dead-letters?contract="+contract).Items
	if len(all) == 0 {
		t.Fatalf("AD-051 %s has no dead letter", contract)
	}
	if last := all[len(all)-1]; last.ReplayedAs == nil || *last.ReplayedAs != as ||
		last.ReplayedAt == nil {
		t.Errorf("AD-051 the dead letter is %+v, want one that was replayed as %d", last, as)
	}
	for _, q := range get[struct {
		Items []struct {
			Queue string
			Dead  int64
		}
	}](t, w.world, "/admin/v1/queues?contract="+contract).Items {
		if q.Dead != 0 {
			t.Errorf("AD-030 %s/%s has %d dead, want none", contract, q.Queue, q.Dead)
		}
	}
}

// AD-016, AD-051, G-AD-14, RT-003: a manifest can be canceled while a resource is open, and retried
// when one has failed. A resource can be retried when it is dead, run now while it waits for
// another attempt, and released.
func TestActionsOfFetchBox(t *testing.T) {
	withAll(t, func(t *testing.T, w *allWorld) {
		of, resource := w.fetch(t)
		w.wantOnly(t, of.Number, "queued", "cancel")
		w.wantOnly(t, resource.Number, "queued")

		run := w.lease(t, resource.Number)
		w.wantOnly(t, of.Number, "in_progress", "cancel")
		w.wantOnly(t, resource.Number, "downloading", "release")
		w.wantState(t, w.acted(t, resource.Number, "release"), "queued")
		w.fenced(t, run)

		w.report(t, w.lease(t, resource.Number), "fail", mayBeRetried)
		w.wantOnly(t, resource.Number, "queued", "run-now")
		w.wantState(t, w.acted(t, resource.Number, "run-now"), "queued")

		w.breakJob(t, resource.Number)
		w.wantOnly(t, resource.Number, "dead", "retry")
		if got := w.acted(t, resource.Number, "retry"); got.Number != resource.Number ||
			got.State != "queued" || got.MadeFrom != nil {
			t.Errorf("AD-016 a retry answered %+v", got)
		}
		w.wantReplayed(t, "fetchbox", resource.Number)
		w.wantOnly(t, of.Number, "in_progress", "cancel")

		w.wantState(t, w.acted(t, of.Number, "cancel"), "in_progress", "retry")
		w.wantOnly(t, of.Number, "in_progress", "retry")
		w.wantState(t, w.acted(t, of.Number, "retry"), "in_progress", "cancel")
		w.wantReplayed(t, "fetchbox", resource.Number)
		audit := w.audit(t, "?action=job.cancel").Items
		if len(audit) == 0 || audit[0].Target != fmt.Sprintf("job:%d", of.Number) {
			t.Errorf("AD-006 the audit has %+v", audit)
		}

		w.breakJob(t, resource.Number)
		all := get[deadLetters](t, w.world, "/admin/v1/dead-letters?contract=fetchbox").Items
		last := all[len(all)-1]
		if len(all) != 3 || last.Number != resource.Number || last.ReplayedAt != nil {
			t.Fatalf("G-AD-14 the dead letters are %+v", all)
		}
		got := testkit.DecodeReply[jobState](t, w.replay(t, last.ID, "").WantStatus(t, 200))
		if got.Number != resource.Number || got.State != "queued" {
			t.Errorf("AD-051 a replay answered %+v", got)
		}
		w.wantReplayed(t, "fetchbox", resource.Number)
		w.replay(t, last.ID, "").WantError(t, 409, "CONFLICT", "again")

		w.end(t, w.lease(t, resource.Number), engine.Outcome{On: job.Succeeded})
		w.wantOnly(t, resource.Number, "done")
		w.wantOnly(t, of.Number, "completed")
	})
}

// AD-017, G-AD-09: a manifest is submitted by the rules of its own route, with the job type and an
// idempotency key beside it. What these refuse is 400 and leaves nothing.
func TestSubmitToFetchBox(t *testing.T) {
	withAll(t, func(t *testing.T, w *allWorld) {
		for body, words := range map[string]string{
			`{"contract":"fetchbox","request":{},"job_type":"default"}`:                     "manifest_version",
			`{"contract":"fetchbox","request":` + manifest + `}`:                            "job_type",
			`{"contract":"fetchbox","request":` + manifest + `,"job_type":"other"}`:         "other",
			`{"contract":"fetchbox","request":` + manifest + `,"job_type":"default","x":1}`: "x",
			`{"contract":"images","request":{}}`:                                            "/images/v1/files",
		} {
			w.post(t, "/admin/v1/jobs", body).WantError(t, 400, "VALIDATION_ERROR", words)
		}
		if all := get[struct{ Items []jobState }](t, w.world, "/admin/v1/jobs").Items; len(all) > 0 {
			t.Errorf("AD-017 what was refused has made %+v", all)
		}
		const more = `,"job_type":"default","owner":"tenant","idempotency_key":"k"`
		first := w.submitJob(t, "fetchbox", manifest, more)
		if second := w.submitJob(t, "fetchbox", manifest, more); second.Number != first.Number {
			t.Errorf("AD-017 one key made jobs %d and %d", first.Number, second.Number)
		}
		if n := len(w.audit(t, "?action=job.submit").Items); n != 1 {
			t.Errorf("AD-017 there are %d entries for one job", n)
		}
		own := testkit.DecodeReply[struct {
			Tenant string
			Type   string `json:"job_type"`
			Status string
		}](t, w.ask(t, "GET", "/operators/jobs/"+first.ID, ""))
		if own.Tenant != "tenant" || own.Type != "default" || own.Status != "queued" {
			t.Errorf("AD-017 the contract's own route shows %+v", own)
		}
	})
}

// AD-016, AD-051: jobs of Images can be run now and canceled while they wait for another attempt,
// released, and made once more when they are done.
func TestActionsOfImages(t *testing.T) {
	withAll(t, func(t *testing.T, w *allWorld) {
		j := w.upload(t)
		w.wantOnly(t, j.Number, "queued")
		run := w.lease(t, j.Number)
		w.wantOnly(t, j.Number, "processing", "release")
		w.wantState(t, w.acted(t, j.Number, "release"), "failed_retryable", "cancel")
		w.wantOnly(t, j.Number, "failed_retryable", "cancel")
		w.fenced(t, run)
		w.upload(t)
		w.wantCounts(t) // AD-018: of a phase with several states
		w.report(t, w.lease(t, j.Number), "fail", mayBeRetried)
		w.wantOnly(t, j.Number, "failed_retryable", "run-now", "cancel")
		w.wantState(t, w.acted(t, j.Number, "run-now"), "failed_retryable", "cancel")
		w.wantState(t, w.acted(t, j.Number, "cancel"), "failed", "rerun")
		w.wantOnly(t, j.Number, "failed", "rerun")
		own := testkit.DecodeReply[struct {
			Status string
			Type   string `json:"last_error_type"`
		}](t, w.ask(t, "GET", "/images/v1/jobs/"+j.ID, ""))
		if own.Status != "failed" || own.Type != "canceled" {
			t.Errorf("AD-016 the contract's own route shows %+v", own)
		}

		made := w.acted(t, j.Number, "rerun")
		if made.Number == j.Number || made.MadeFrom == nil || *made.MadeFrom != j.Number ||
			made.State != "queued" {
			t.Errorf("AD-016 a rerun answered %+v", made)
		}
		w.wantReplayed(t, "images", made.Number)
		w.end(t, w.lease(t, made.Number), engine.Outcome{On: job.Succeeded, Result: []byte(`{}`)})
		w.wantOnly(t, made.Number, "completed", "rerun")
		again := w.acted(t, made.Number, "rerun")
		w.wantState(t, again, "queued")

		w.breakJob(t, again.Number)
		deadLetter := w.deadLetters(t, "?contract=images", 2).Items[1]
		replayed := testkit.DecodeReply[jobState](t, w.replay(t, deadLetter.ID, "").WantStatus(t, 200))
		w.wantReplayed(t, "images", replayed.Number)
		w.replay(t, deadLetter.ID, "").WantError(t, 409, "CONFLICT", "again")

		deletion := w.find(t, "images", testkit.DecodeReply[struct {
			ID string `json:"job_id"`
		}](t, w.ask(t, "DELETE", "/images/v1/files/"+w.ownerOf(t, j.Number), "")).ID)
		w.wantOnly(t, deletion.Number, "queued")
		w.breakJob(t, deletion.Number)
		w.wantState(t, w.acted(t, deletion.Number, "rerun"), "queued")
	})
}

// ownerOf returns the owner of a job.
func (w *allWorld) ownerOf(t *testing.T, number int64) string {
	t.Helper()
	return get[struct{ Owner string }](t, w.world, fmt.Sprintf("/admin/v1/jobs/%d", number)).Owner
}

// AD-016, AD-051, G-AD-05: purges are jobs of Images, found by their kind. They can be run now
// while they wait for another attempt, and released; the replay of a dead letter keeps the purge.
func TestActionsOfPurges(t *testing.T) {
	withAll(t, func(t *testing.T, w *allWorld) {
		p := w.purge(t)
		found := get[struct{ Items []jobState }](t, w.world,
			"/admin/v1/jobs?contract=images&kind=purge").Items
		if len(found) != 1 || found[0].Number != p.Number || found[0].Contract != "images" {
			t.Errorf("G-AD-05 kind=purge lists %+v, want %d", found, p.Number)
		}
		w.wantOnly(t, p.Number, "queued")
		run := w.lease(t, p.Number)
		w.wantOnly(t, p.Number, "running", "release")
		w.wantState(t, w.acted(t, p.Number, "release"), "queued")
		w.fenced(t, run)
		w.end(t, w.lease(t, p.Number), engine.Outcome{On: job.Failed, Reason: "away",
			Delay: time.Minute})
		w.wantOnly(t, p.Number, "queued", "run-now")

		// The operations on all of a kind leave the others alone.
		w.run(t)
		other := w.upload(t)
		w.report(t, w.lease(t, other.Number), "fail", mayBeRetried)
		w.clock.Advance(time.Millisecond)
		id := w.startBulk(t, "/admin/v1/bulk",
			`{"action":"run-now","filter":{"contract":"images","kind":"purge"}}`)
		if b := w.await(t, id, "done"); b.Done != 1 || b.Failed+b.Skipped != 0 || *b.Total != 1 {
			t.Errorf("AD-020 the operation on purges is %+v", b)
		}
		w.wantOnly(t, other.Number, "failed_retryable", "run-now", "cancel")
		w.wantOnly(t, p.Number, "queued")

		w.end(t, w.lease(t, p.Number), engine.Outcome{On: job.FailedForGood, Reason: "away"})
		w.wantOnly(t, p.Number, "failed")
		deadLetter := w.deadLetters(t, "?contract=images", 1).Items[0]
		got := testkit.DecodeReply[jobState](t, w.replay(t, deadLetter.ID, "").WantStatus(t, 200))
		if got.Number != p.Number || got.State != "queued" {
			t.Errorf("AD-051 the replay of a purge answered %+v", got)
		}
		w.replay(t, deadLetter.ID, "").WantError(t, 409, "CONFLICT", "again")
		w.end(t, w.lease(t, p.Number), engine.Outcome{On: job.Succeeded})
		w.wantOnly(t, p.Number, "done")
	})
}
