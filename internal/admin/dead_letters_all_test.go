package admin_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// group is a group of dead letters as it is answered.
type group struct {
	Fingerprint, Contract, Queue string
	ErrorType                    string `json:"error_type"`
	Error                        *string
	Count                        int64
}

// failTask submits a job of TaskFlow that fails for good, and returns it.
func (w *jobsWorld) failTask(t *testing.T, queue, failure string) jobState {
	t.Helper()
	j := w.submitJob(t, "taskflow", fmt.Sprintf(`{"name":"a","queue":%q}`, queue), "")
	w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.FailedForGood,
		Failure: []byte(failure)})
	return j
}

// failRun submits a job of ForgeRun that fails, and returns it.
func (w *jobsWorld) failRun(t *testing.T) jobState {
	t.Helper()
	j := w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
		fmt.Sprintf(`,"owner":%q`, w.client))
	run := w.claim(t, "forgerun")
	w.end(t, run, engine.Outcome{On: job.Started})
	w.end(t, run, engine.Outcome{On: job.FailedForGood, Failure: []byte(`{"code":"x"}`)})
	return j
}

// wantDead checks how many open dead letters a queue has.
func (w *jobsWorld) wantDead(t *testing.T, contract, queue string, n int64) {
	t.Helper()
	for _, q := range get[struct {
		Items []struct {
			Contract, Queue string
			Dead            int64
		}
	}](t, w.world, "/admin/v1/queues?contract="+contract).Items {
		if q.Queue == queue && q.Dead != n {
			t.Errorf("AD-030 %s/%s has %d dead, want %d", contract, queue, q.Dead, n)
		}
	}
}

// AD-050, AD-030: dead letters of every contract are in one list, grouped by what they have in
// common, and counted by queue.
func TestDeadLettersOfAllContracts(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.lose(t, "a", "1")
		w.failTask(t, "q", `{"type":"timeout","error":"no answer from 10.0.0.1 after 3 s"}`)
		second := w.failTask(t, "q", `{"type":"timeout","error":"no answer from 10.0.0.2 after 14 s"}`)
		w.failTask(t, "q", `{"type":"timeout","error":"refused"}`)
		w.failRun(t)
		all := w.deadLetters(t, "", 5).Items
		if all[0].Contract != "relay" || all[1].Contract != "taskflow" ||
			all[4].Contract != "forgerun" || all[1].Fingerprint != all[2].Fingerprint ||
			all[2].Fingerprint == all[3].Fingerprint || all[2].Number != second.Number {
			t.Errorf("AD-050 got %+v", all)
		}
		w.deadLetters(t, "?contract=taskflow&fingerprint="+all[1].Fingerprint, 2)
		w.deadLetters(t, "?contract=webhook", 0)
		w.deadLetters(t, "?error=FROM+10.0.0.1", 1)
		w.deadLetters(t, "?error=timeout&contract=taskflow", 3) // the type
		w.deadLetters(t, "?error=expired_for_good", 1)
		groups := get[struct{ Items []group }](t, w.world, "/admin/v1/dead-letters/groups").Items
		if len(groups) != 4 || groups[0].Count != 2 || groups[0].Contract != "taskflow" ||
			groups[0].Queue != "q" || groups[0].ErrorType != "timeout" ||
			groups[0].Fingerprint != all[1].Fingerprint ||
			*groups[0].Error != "no answer from 10.0.0.2 after 14 s" {
			t.Errorf("AD-050 the groups are %+v", groups)
		}
		page := get[struct {
			Items      []group
			NextCursor *string `json:"next_cursor"`
		}](t, w.world, "/admin/v1/dead-letters/groups?limit=3")
		rest := get[struct{ Items []group }](t, w.world,
			"/admin/v1/dead-letters/groups?limit=3&cursor="+*page.NextCursor)
		if len(page.Items) != 3 || len(rest.Items) != 1 || rest.Items[0] == page.Items[2] {
			t.Errorf("AD-050 pages of groups: %+v and %+v", page.Items, rest.Items)
		}
		w.wantDead(t, "taskflow", "q", 3)
		w.wantDead(t, "relay", "a", 1)

		// G-AD-06: a dead letter goes with its job.
		w.acted(t, second.Number, "delete")
		w.deadLetters(t, "?contract=taskflow", 2)
		w.wantDead(t, "taskflow", "q", 2)
		one := get[deadLetterView](t, w.world, fmt.Sprintf("/admin/v1/dead-letters/%d", all[0].ID))
		if one != all[0] {
			t.Errorf("AD-050 got %+v, want %+v", one, all[0])
		}
		for _, query := range []string{"?contract=no", "?queue=a", "?cursor=x"} {
			w.do(t, w.api.Token(), "GET", "/admin/v1/dead-letters/groups"+query, "").
				WantError(t, 400, "VALIDATION_ERROR")
		}
	})
}

// AD-050: Relay knows no failures, so its dead letters are grouped by what their workers have
// reported last with heartbeats: errors and steps, without what varies.
func TestDeadLetterGroupsOfRelay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		want := map[string]int64{}
		for i, said := range []string{"", `{"error":"no answer from 10.0.0.1","n":1}`, `"step upload"`,
			`{"percent":40}`, "", `{"error":"no answer from 10.0.0.2"}`, `"step download"`,
			`{"percent":90}`, `{"error":"refused"}`} {
			if said == "" {
				w.lose(t, "q", fmt.Sprint(i))
			} else {
				w.lose(t, "q", fmt.Sprint(i), `"before"`, said)
			}
		}
		for text, count := range map[string]int64{"": 2, "no answer from 10.0.0.2": 2,
			"step upload": 1, "step download": 1, `{"percent":90}`: 2, "refused": 1} {
			if text != "" {
				text = "; its worker reported last: " + text
			}
			want["no heartbeat within 60 s in attempt 1"+text] = count
		}
		got := map[string]int64{}
		for _, g := range get[struct{ Items []group }](t, w.world,
			"/admin/v1/dead-letters/groups?contract=relay").Items {
			got[*g.Error] = g.Count
			if g.ErrorType != "expired_for_good" {
				t.Errorf("AD-050 the type is %s", g.ErrorType)
			}
			w.deadLetters(t, "?fingerprint="+g.Fingerprint, int(g.Count))
		}
		if !maps.Equal(got, want) {
			t.Errorf("AD-050 the groups are %v, want %v", got, want)
		}
	})
}

// AD-051, G-AD-14: ForgeRun replays the same job, TaskFlow makes one, and the dead letter says as
// what; a retry by whoever is a replay of the dead letter as well. What fails again is a new dead
// letter.
func TestReplayOfAllContracts(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		task, run := w.failTask(t, "q", `{"error":"x"}`), w.failRun(t)
		all := w.deadLetters(t, "", 2).Items
		for i, same := range []bool{false, true} {
			made := testkit.DecodeReply[jobState](t, w.replay(t, all[i].ID, "").WantStatus(t, 200))
			if (made.Number == all[i].Number) != same {
				t.Errorf("G-AD-14 the replay of %+v is %+v", all[i], made)
			}
			l := w.deadLetters(t, "", 2).Items[i]
			if l.ReplayedAs == nil || *l.ReplayedAs != made.Number || l.ReplayedAt == nil {
				t.Errorf("AD-051 the replayed dead letter is %+v, want %d", l, made.Number)
			}
			w.replay(t, all[i].ID, "").WantError(t, 409, "CONFLICT", "again")
		}
		w.wantDead(t, "taskflow", "q", 0)
		w.wantDead(t, "forgerun", "default", 0)
		w.replay(t, all[0].ID, `{"again":true}`).WantStatus(t, 200)
		w.wantDead(t, "taskflow", "q", 0)
		if task.Number == run.Number {
			t.Fatal("two jobs have one number")
		}

		again := w.claim(t, "forgerun")
		w.end(t, again, engine.Outcome{On: job.Started})
		w.end(t, again, engine.Outcome{On: job.Failed, Failure: []byte(`{"code":"y"}`)})
		w.wantDead(t, "forgerun", "default", 1)
		w.acted(t, run.Number, "retry")
		w.wantDead(t, "forgerun", "default", 0)
		l := w.deadLetters(t, "?contract=forgerun", 2).Items[1]
		if l.ReplayedAs == nil || *l.ReplayedAs != run.Number {
			t.Errorf("G-AD-06 the dead letter of a retried job is %+v", l)
		}
		got := w.audit(t, "?action=dead_letter.replay").Items
		if len(got) != 3 || string(got[2].Before) != "null" || string(got[0].Before) == "null" {
			t.Errorf("AD-006 the audit has %+v", got)
		}
	})
}

// A dead letter that is discarded after it was read for its replay is not found, whichever contract
// replays it, and no job is made.
func TestReplayOfADiscardedDeadLetter(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.lose(t, "a", "1")
		w.failTask(t, "q", `{"error":"x"}`)
		w.failRun(t)
		for _, one := range w.deadLetters(t, "", 3).Items {
			stale, err := w.engine.DeadLettersByID(t.Context(), one.ID)
			if err != nil || len(stale) != 1 {
				t.Fatalf("%v, %v", stale, err)
			}
			w.do(t, w.api.Token(), "DELETE", fmt.Sprintf("/admin/v1/dead-letters/%d", one.ID),
				"").WantStatus(t, 204)
			_, err = w.engine.ReplayDeadLetter(t.Context(), engine.Replay{DeadLetter: &stale[0],
				Do: contract.OperatorOf(w.contracts, one.Contract).Replay})
			if !errors.Is(err, engine.ErrNoDeadLetter) {
				t.Errorf("AD-051 %s: got %v", one.Contract, err)
			}
		}
		if all, err := w.engine.List(t.Context(), store.Filter{Phases: []job.Phase{
			job.Ready}}); err != nil || len(all) != 0 {
			t.Errorf("AD-051 %d jobs are ready, %v", len(all), err)
		}
	})
}
