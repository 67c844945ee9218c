package taskflow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestMoves: whatever changes a status moves updated_at, and to the time of the change, also where
// nobody asked for it.
func TestMoves(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		// Changes of one instant are distinguished by microseconds.
		moved := func(t *testing.T, v jobView) {
			t.Helper()
			assertEqual(t, "updated_at", v.UpdatedAt.Truncate(time.Millisecond), w.clock.Now())
		}
		for _, c := range []struct {
			name, want string
			change     func(t *testing.T, id string) // of a job that is READY
			second     bool                          // it is its dependent that is looked at
		}{
			{"claimed", "RUNNING", func(t *testing.T, id string) { w.claimAndStart(t, id) }, false},
			{"completed", "COMPLETED", func(t *testing.T, id string) { w.succeed(t, id) }, false},
			{"to be tried again", "READY", func(t *testing.T, id string) {
				w.fail(t, id, true)
			}, false},
			{"given back", "READY", func(t *testing.T, id string) {
				w.finish(t, w.claimAndStart(t, id), engine.Outcome{On: job.Released})
			}, false},
			{"failed", "FAILED", func(t *testing.T, id string) { w.fail(t, id, false) }, false},
			{"its worker is gone", "READY", func(t *testing.T, id string) {
				w.claimAndStart(t, id)
				w.clock.Advance(lease)
				w.runMaintenance(t)
			}, false},
			{"released", "READY", func(t *testing.T, id string) { w.succeed(t, id) }, true},
			{"blocked", "BLOCKED", func(t *testing.T, id string) { w.fail(t, id, false) }, true},
		} {
			t.Run("TF-011 "+c.name, func(t *testing.T) {
				first := w.create(t, attempts(2, "FIXED", 1, 1))
				second := w.create(t, dependenciesMember(first.ID)).ID
				w.clock.Advance(time.Second)
				c.change(t, first.ID)
				seen := first.ID
				if c.second {
					seen = second
				}
				moved(t, w.status(t, seen, c.want))
			})
		}
		t.Run("TF-011 blocked through another", func(t *testing.T) {
			first := w.create(t).ID
			last := w.create(t, dependenciesMember(w.create(t, dependenciesMember(first)).ID)).ID
			w.clock.Advance(time.Second)
			w.fail(t, first, false)
			moved(t, w.status(t, last, "BLOCKED"))
		})
	})
}

// TestListed: a dependency stays as long as it is listed, however its dependent stands (G-TF-20).
func TestListed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			status string
			reach  func(t *testing.T, first, second string)
		}{
			{"PENDING", func(*testing.T, string, string) {}},
			{"READY", func(t *testing.T, first, _ string) { w.succeed(t, first) }},
			{"RUNNING", func(t *testing.T, first, second string) {
				w.succeed(t, first)
				w.claimAndStart(t, second)
			}},
			{"COMPLETED", func(t *testing.T, first, second string) {
				w.succeed(t, first)
				w.succeed(t, second)
			}},
			{"FAILED", func(t *testing.T, first, second string) {
				w.succeed(t, first)
				w.fail(t, second, false)
			}},
			{"BLOCKED", func(t *testing.T, first, _ string) { w.fail(t, first, false) }},
		} {
			t.Run("TF-083 by one that is "+c.status, func(t *testing.T) {
				first := w.create(t).ID
				second := w.create(t, dependenciesMember(first)).ID
				c.reach(t, first, second)
				was := w.status(t, second, c.status)
				w.Do(t, "DELETE", pathOf(first), "").WantError(t, 409, "CONFLICT")
				assertEqual(t, "unchanged", fmt.Sprintf("%+v", w.get(t, second)),
					fmt.Sprintf("%+v", was))
				w.Do(t, "DELETE", pathOf(second), "").WantStatus(t, 204)
				w.Do(t, "DELETE", pathOf(first), "").WantStatus(t, 204)
			})
		}
	})
}

// TestOneMember: an update of one member leaves all others as they are.
func TestOneMember(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		first, other := w.create(t).ID, w.create(t).ID
		for _, c := range []struct {
			name, member string
			change       func(v *jobView)
		}{
			{"name", nameMember("new"), func(v *jobView) { v.Name = "new" }},
			{"queue", `"queue":"other"`, func(v *jobView) { v.Queue = "other" }},
			{"payload", `"payload":[2]`, func(v *jobView) { v.Payload = []byte("[2]") }},
			{"priority", `"priority":1`, func(v *jobView) { v.Priority = 1 }},
			{"retry_policy", attempts(4, "FIXED", 2, 3), func(v *jobView) {
				v.RetryPolicy = policy{4, "FIXED", 2, 3}
			}},
			{"dependencies", dependenciesMember(other), func(v *jobView) {
				v.Dependencies = []string{other}
			}},
		} {
			t.Run("TF-078 "+c.name, func(t *testing.T) {
				want := w.create(t, `"payload":{"a":1},"priority":8`, attempts(5, "LINEAR", 7, 8),
					dependenciesMember(first))
				w.clock.Advance(time.Second)
				got := w.put(t, want.ID, c.member)
				c.change(&want)
				want.UpdatedAt = w.clock.Now()
				assertEqual(t, "answer", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
				assertEqual(t, "read again", fmt.Sprintf("%+v", w.get(t, want.ID)),
					fmt.Sprintf("%+v", want))
			})
		}
		t.Run("TF-077 TF-008 fifty-one dependencies in an update", func(t *testing.T) {
			v := w.create(t, dependenciesMember(first))
			w.Do(t, "PUT", pathOf(v.ID),
				`{"dependencies":["`+strings.Repeat(other+`","`, 50)+first+`"]}`).WantError(t, 400,
				"VALIDATION_ERROR", "dependencies")
			assertEqual(t, "unchanged", fmt.Sprint(w.get(t, v.ID).Dependencies),
				fmt.Sprint([]string{first}))
		})
	})
}

// TestCursorOfADeletedJob: a cursor goes on where its page ended, also when the job that it names
// is gone, and with equal times around it.
func TestCursorOfADeletedJob(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for range 4 {
			for range 3 {
				w.create(t)
			}
			w.clock.Advance(time.Second)
		}
		whole := w.allPages(t)
		assertEqual(t, "jobs", len(whole), 12)
		t.Run("TF-101 TF-098 each page's last job is deleted behind it", func(t *testing.T) {
			var got []string
			query := []string{"limit", "2"}
			for {
				p := w.search(t, query...)
				for _, v := range p.Items {
					got = append(got, v.ID)
				}
				w.Do(t, "DELETE", pathOf(got[len(got)-1]), "").WantStatus(t, 204)
				if !p.HasMore {
					break
				}
				query = []string{"limit", "2", "cursor", *p.NextCursor}
			}
			var want []string
			for _, v := range whole {
				want = append(want, v.ID)
			}
			assertEqual(t, "walk", fmt.Sprint(got), fmt.Sprint(want))
		})
	})
}

// TestSlotOfALostRun: a run that has ended in any way gives its slot back, also when its worker is
// gone or its job is deleted.
func TestSlotOfALostRun(t *testing.T) {
	c := config()
	c.MaxConcurrent = 1
	onEveryStoreWith(t, c, func(t *testing.T, w *world) {
		for name, end := range map[string]func(t *testing.T, j *job.Job){
			"completed": func(t *testing.T, j *job.Job) {
				w.finish(t, j, taskflow.SuccessOutcome(j, nil))
			},
			"failed": func(t *testing.T, j *job.Job) {
				w.finish(t, j, taskflow.FailureOutcome(j, "x", "y", false))
			},
			"retried": func(t *testing.T, j *job.Job) {
				w.finish(t, j, taskflow.FailureOutcome(j, "x", "y", true))
			},
			"lost": func(t *testing.T, _ *job.Job) {
				w.clock.Advance(lease)
				w.runMaintenance(t)
			},
			"deleted": func(t *testing.T, j *job.Job) {
				w.Do(t, "DELETE", pathOf(j.ID.Key), "").WantStatus(t, 204)
			},
		} {
			t.Run("TF-055 TF-084 TF-107 "+name, func(t *testing.T) {
				j := w.claimAndStart(t, w.create(t, `"priority":9`,
					attempts(2, "FIXED", 300, 300)).ID)
				next := w.create(t).ID
				assertEqual(t, "while it runs", len(w.claims(t, 10)), 0)
				end(t, j)
				jobs := w.claims(t, 10)
				if len(jobs) != 1 || jobs[0].ID.Key != next {
					t.Fatalf("got %d jobs after it", len(jobs))
				}
				w.finish(t, jobs[0], taskflow.SuccessOutcome(jobs[0], nil))
				w.Do(t, "DELETE", pathOf(next), "").WantStatus(t, 204)
				if name != "deleted" {
					w.Do(t, "DELETE", pathOf(j.ID.Key), "").WantStatus(t, 204)
				}
			})
		}
	})
}
