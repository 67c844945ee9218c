package taskflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

func TestUpdate(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-073 TF-079 all that can be changed", func(t *testing.T) {
			v := w.create(t)
			w.clock.Advance(time.Second)
			got := w.put(t, v.ID, `"name":"new","queue":"other","payload":[1],"priority":9`,
				attempts(5, "FIXED", 7, 8))
			assertEqual(t, "job", fmt.Sprint(got.Name, got.Queue, string(got.Payload), got.Priority,
				got.RetryPolicy, got.Status), "newother[1]9 {5 FIXED 7 8}READY")
			assertEqual(t, "moved", got.UpdatedAt.After(v.UpdatedAt), true)
			assertEqual(t, "read again", fmt.Sprintf("%+v", w.get(t, v.ID)),
				fmt.Sprintf("%+v", got))
			assertEqual(t, "where it was", len(w.search(t, "queue", "q").Items), 0)
			assertEqual(t, "where it is",
				w.search(t, "queue", "other", "priority_min", "9").Items[0].ID, v.ID)
			w.succeed(t, v.ID)
		})
		t.Run("TF-078 what is left out stays", func(t *testing.T) {
			first := w.create(t).ID
			v := w.create(t, `"payload":{"a":1},"priority":8`, attempts(5, "FIXED", 7, 8),
				dependenciesMember(first))
			got := w.put(t, v.ID)
			v.UpdatedAt = got.UpdatedAt
			assertEqual(t, "nothing", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", v))
			got = w.put(t, v.ID, `"payload":null`)
			assertEqual(t, "payload", fmt.Sprint(string(got.Payload), got.Priority,
				got.Dependencies), fmt.Sprint("null", 8, []string{first}))
			got = w.put(t, v.ID, `"retry_policy":{"max_attempts":2}`) // G-TF-06
			assertEqual(t, "policy", got.RetryPolicy, policy{2, "EXPONENTIAL", 10, 300})
		})
		t.Run("TF-076 what the server sets", func(t *testing.T) {
			v := w.create(t)
			all := w.Do(t, "GET", pathOf(v.ID), "").WantStatus(t, 200).Body
			w.Do(t, "PUT", pathOf(v.ID), all, beyondDocument, "1").WantStatus(t, 200)
			for name, value := range map[string]string{"id": `"00000000-0000-4000-8000-000000000000"`, "created_at": `"2001-01-01T00:00:00Z"`, "status": `"RUNNING"`, "attempt_count": `1`} {
				w.Do(t, "PUT", pathOf(v.ID),
					fmt.Sprintf(`{"name":"x",%q:%s}`, name, value)).WantError(t, 400,
					"VALIDATION_ERROR", name)
				w.Do(t, "PUT", pathOf(v.ID), fmt.Sprintf(`{"name":"x",%q:null}`, name)).WantError(t,
					400, "VALIDATION_ERROR", name)
			}
			assertEqual(t, "name", w.get(t, v.ID).Name, v.Name)
			w.put(t, v.ID, fmt.Sprintf(`"id":%q,"created_at":%q`, strings.ToUpper(v.ID),
				v.CreatedAt.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano)))
		})
		t.Run("TF-075 what is done", func(t *testing.T) {
			completed, failed := w.create(t).ID, w.create(t).ID
			blocked := w.create(t, dependenciesMember(failed)).ID
			w.succeed(t, completed)
			w.fail(t, failed, false)
			for id, status := range map[string]string{completed: "COMPLETED", failed: "FAILED",
				blocked: "BLOCKED"} {
				// G-TF-34
				for _, body := range []string{`{}`, `{"name":""}`, `{`, `{"dependencies":[]}`,
					`{"dependencies":["` + id + `"]}`} {
					w.Do(t, "PUT", pathOf(id), body).WantError(t, 409, "CONFLICT", status)
				}
			}
		})
		t.Run("TF-077 while it runs", func(t *testing.T) { // G-TF-08
			v := w.create(t, attempts(3, "FIXED", 1, 1))
			j := w.claimAndStart(t, v.ID)
			got := w.put(t, v.ID, `"payload":"new"`, attempts(1, "FIXED", 1, 1))
			assertEqual(t, "status", got.Status, "RUNNING")
			assertEqual(t, "the run keeps its payload", string(j.Payload), "{}")
			w.finish(t, j, taskflow.FailureOutcome(j, "x", "y", true))
			assertEqual(t, "the policy in force", w.status(t, v.ID, "FAILED").AttemptCount, 1)
		})
		t.Run("TF-067 a retry keeps its delay", func(t *testing.T) {
			v := w.create(t, attempts(3, "FIXED", 10, 10))
			w.fail(t, v.ID, true)
			got := w.put(t, v.ID, `"payload":"new"`)
			assertEqual(t, "next_run_at", got.NextRunAt.Equal(w.clock.Now().Add(10*time.Second)),
				true)
			w.Do(t, "PUT", pathOf(v.ID), `{"retry_policy":{"max_attempts":2}}`).WantStatus(t, 200)
			w.clock.Advance(10 * time.Second)
			assertEqual(t, "the new payload", string(w.claimAndStart(t, v.ID).Payload), `"new"`)
		})
		// G-TF-34
		t.Run("TF-066 no more runs than the attempts that are left by an update",
			func(t *testing.T) {
				v := w.create(t, attempts(5, "FIXED", 1, 1))
				for range 2 {
					w.fail(t, v.ID, true)
					w.clock.Advance(time.Second)
				}
				refused := func() {
					t.Helper()
					for n := 1; n <= 2; n++ { // two runs have been, and a third comes or is there
						w.Do(t, "PUT", pathOf(v.ID),
							"{"+attempts(n, "FIXED", 1, 1)+"}").WantError(t,
							400, "VALIDATION_ERROR", "max_attempts")
					}
					assertEqual(t, "unchanged", w.get(t, v.ID).RetryPolicy.MaxAttempts, 5)
				}
				refused()
				j := w.claimAndStart(t, v.ID)
				refused()
				w.put(t, v.ID, attempts(3, "FIXED", 1, 1))
				w.finish(t, j, taskflow.FailureOutcome(j, "x", "y", true))
				assertEqual(t, "runs", w.status(t, v.ID, "FAILED").AttemptCount, 3)
			})
		t.Run("TF-077 unknown dependencies", func(t *testing.T) {
			v := w.create(t)
			stranger := "00000000-0000-4000-8000-000000000000"
			w.Do(t, "PUT", pathOf(v.ID),
				"{"+nameMember("x")+","+dependenciesMember(stranger)+"}").WantError(t, 400,
				"VALIDATION_ERROR", "dependencies", stranger)
			assertEqual(t, "unchanged", fmt.Sprintf("%+v", w.get(t, v.ID)), fmt.Sprintf("%+v", v))
			w.Do(t, "PUT", pathOf(stranger), "{"+dependenciesMember(v.ID)+"}").WantError(t, 404,
				"NOT_FOUND")
		})
	})
}

func TestRelink(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-080 a job that waits is looked at anew", func(t *testing.T) {
			open, done, failed := w.create(t).ID, w.create(t).ID, w.create(t).ID
			w.succeed(t, done)
			w.fail(t, failed, false)
			for want, deps := range map[string][]string{"PENDING": {open, done}, "READY": {done},
				"BLOCKED": {open, failed}} {
				id := w.create(t, dependenciesMember(open)).ID
				behind := w.create(t, dependenciesMember(id)).ID
				got := w.put(t, id, dependenciesMember(deps...))
				assertEqual(t, "status", got.Status, want)
				assertEqual(t, "dependencies", fmt.Sprint(got.Dependencies), fmt.Sprint(deps))
				assertEqual(t, "behind it", w.get(t, behind).Status,
					map[bool]string{true: "BLOCKED", false: "PENDING"}[want == "BLOCKED"])
				assertEqual(t, "read again", fmt.Sprintf("%+v", w.get(t, id)),
					fmt.Sprintf("%+v", got))
				if want == "READY" {
					w.succeed(t, id)
					w.status(t, behind, "READY")
				}
			}
			id := w.create(t, dependenciesMember(open)).ID
			assertEqual(t, "none", w.put(t, id, dependenciesMember()).Status, "READY")
		})
		t.Run("TF-080 what counts is the new list", func(t *testing.T) {
			a, b := w.create(t).ID, w.create(t).ID
			id := w.create(t, dependenciesMember(a)).ID
			w.put(t, id, dependenciesMember(b))
			w.succeed(t, a)
			w.status(t, id, "PENDING")
			w.Do(t, "DELETE", pathOf(a), "").WantStatus(t, 204)
			w.Do(t, "DELETE", pathOf(b), "").WantError(t, 409, "CONFLICT")
			w.succeed(t, b)
			w.status(t, id, "READY")
		})
		t.Run("TF-080 one that does not wait", func(t *testing.T) {
			open, done := w.create(t).ID, w.create(t).ID
			w.succeed(t, done)
			for _, status := range []string{"READY", "RUNNING"} {
				v := w.create(t)
				if status == "RUNNING" {
					w.claimAndStart(t, v.ID)
				}
				w.Do(t, "PUT", pathOf(v.ID),
					"{"+nameMember("x")+","+dependenciesMember(done, open)+"}").WantError(t, 409,
					"CONFLICT", status)
				assertEqual(t, "unchanged", w.status(t, v.ID, status).Name, v.Name)
				assertEqual(t, "those that are done",
					fmt.Sprint(w.put(t, v.ID, dependenciesMember(done)).Dependencies),
					fmt.Sprint([]string{done}))
				w.status(t, v.ID, status)
			}
		})
		t.Run("TF-033 TF-034 TF-037 TF-077 a cycle", func(t *testing.T) {
			root := w.create(t).ID
			a := w.create(t, dependenciesMember(root)).ID
			b := w.create(t, dependenciesMember(a)).ID
			c := w.create(t, dependenciesMember(root, b)).ID
			p := w.Do(t, "PUT", pathOf(a), "{"+nameMember("x")+","+dependenciesMember(root, c)+"}")
			assertEqual(t, "path", fmt.Sprint(cycle(t, p)), fmt.Sprint([]string{a, c, b}))
			v := w.get(t, a)
			assertEqual(t, "nothing stored", fmt.Sprint(v.Name, v.Dependencies),
				fmt.Sprint("n", []string{root}))
			w.succeed(t, root)
			w.status(t, a, "READY")
		})
		t.Run("TF-035 itself", func(t *testing.T) {
			root := w.create(t).ID
			id := w.create(t, dependenciesMember(root)).ID
			p := w.Do(t, "PUT", pathOf(id), "{"+dependenciesMember(id)+"}")
			assertEqual(t, "path", fmt.Sprint(cycle(t, p)), fmt.Sprint([]string{id}))
		})
		t.Run("TF-036 TF-038 a diamond is none", func(t *testing.T) {
			root := w.create(t).ID
			a, b := w.create(t, dependenciesMember(root)).ID,
				w.create(t, dependenciesMember(root)).ID
			w.put(t, w.create(t, dependenciesMember(root)).ID, dependenciesMember(a, b, root))
		})
		t.Run("TF-040 two updates that together close a cycle", func(t *testing.T) {
			root := w.create(t).ID
			for range 25 {
				a, b := w.create(t, dependenciesMember(root)).ID,
					w.create(t, dependenciesMember(root)).ID
				answers := testkit.RunConcurrently(2, func(i int) testkit.Reply {
					ids := []string{a, b}
					return w.Do(t, "PUT", pathOf(ids[i]),
						"{"+dependenciesMember(root, ids[1-i])+"}")
				})
				got := []int{answers[0].Status, answers[1].Status}
				slices.Sort(got)
				assertEqual(t, "answers", fmt.Sprint(got), "[200 409]")
			}
		})
		t.Run("TF-039 TF-041 a chain of thousands", func(t *testing.T) {
			const n = 3000
			var jobs []string
			for i := range n {
				deps := ""
				if i > 0 {
					deps = fmt.Sprintf(`,"depends_on":["%d"]`, i-1)
				}
				jobs = append(jobs, fmt.Sprintf(`{"ref":"%d","name":"n","queue":"chain"%s}`, i,
					deps))
			}
			ids := w.graph(t, jobs...)
			gate := w.create(t).ID
			// it does not wait
			w.Do(t, "PUT", pathOf(ids["0"]), "{"+dependenciesMember(gate)+"}").WantError(t, 409,
				"CONFLICT")
			p := w.Do(t, "PUT", pathOf(ids["1"]), "{"+dependenciesMember(ids[fmt.Sprint(n-1)])+"}")
			assertEqual(t, "path", len(cycle(t, p)), n-1)
		})
	})
}
