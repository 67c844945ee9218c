package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// TestHeartbeat is section 5.5.
func TestHeartbeat(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RL-051 renews_timeout_and_updated_at", func(t *testing.T) {
			w.put(t, jobBody("heartbeat", "1", `"timeout":10`))
			v := w.claim(t, "heartbeat")
			w.clock.Advance(9 * time.Second)
			w.heartbeat(t, v, "").WantStatus(t, 202).WantEmpty(t)
			assertEqual(t, "updated_at", w.get(t, "heartbeat", "1").UpdatedAt, w.clock.Now())
			w.clock.Advance(9 * time.Second)
			w.runMaintenance(t)
			assertEqual(t, "still in flight", *w.get(t, "heartbeat", "1").RunID, *v.RunID)
		})
		for _, state := range []string{`{"a":[1.0]}`, `[]`, `"s"`, `12345678901234567890`, `true`,
			` {"space" : 1} `} {
			t.Run("RL-052 state_"+state, func(t *testing.T) {
				queue := "state " + state
				w.put(t, jobBody("states", queue))
				v := w.claim(t, "states")
				w.heartbeat(t, v, state).WantStatus(t, 202)
				assertEqual(t, "state", string(w.get(t, "states", queue).State),
					strings.TrimSpace(state))
			})
		}
		t.Run("RL-053 without_body_the_state_stays", func(t *testing.T) {
			w.put(t, jobBody("stays", "1", `"state":{"at":7}`))
			v := w.claim(t, "stays")
			w.heartbeat(t, v, "").WantStatus(t, 202)
			w.Do(t, "PATCH", v.runPath(), "", "Content-Type", "application/json", beyondDocument,
				"1").WantStatus(t, 202)
			w.Do(t, "PATCH", v.runPath(), " \r\n\t", beyondDocument, "1").WantStatus(t, 202)
			w.Do(t, "PATCH", v.runPath(), " ", "Content-Type", "text/plain", beyondDocument,
				"1").WantStatus(t, 202)
			assertEqual(t, "state", string(w.get(t, "stays", "1").State), `{"at":7}`)
			w.heartbeat(t, v, "null").WantStatus(t, 202)
			assertEqual(t, "G-RL-05 null clears", string(w.get(t, "stays", "1").State), "null")
		})
		t.Run("RL-054 unknown_waiting_or_another_run", func(t *testing.T) {
			w.put(t, jobBody("other", "flying"), jobBody("other", "same time"))
			v := w.next(t, "other", 2)
			w.put(t, jobBody("other", "waiting"))
			made := v[0]
			made.RunID = new(string)
			*made.RunID = "12345678-1234-8123-8123-123456789abc"
			for _, id := range []string{"flying", "waiting", "unknown"} {
				made.ID = id
				w.heartbeat(t, made, `"x"`).WantStatus(t, 404).WantErrorText(t)
			}
			crossed := v[0]
			crossed.RunID = v[1].RunID // the run of another job
			w.wantLost(t, crossed)
			assertEqual(t, "state", string(w.get(t, "other", "flying").State), "null")
			for _, p := range v {
				w.heartbeat(t, p, "").WantStatus(t, 202)
			}
			upper := v[0]
			upper.RunID = new(string)
			*upper.RunID = strings.ToUpper(*v[0].RunID)
			w.heartbeat(t, upper, "").WantStatus(t, 202)
		})
		t.Run("RL-055 not_json_changes_nothing", func(t *testing.T) {
			w.put(t, jobBody("broken", "1", `"state":1,"timeout":10`))
			v := w.claim(t, "broken")
			before := w.Do(t, "GET", jobPath("broken", "1"), "").Body
			w.clock.Advance(9 * time.Second)
			for _, body := range []string{`{`, `{"a":}`, `1 2`, `nul`, "\"\xff\"",
				strings.Repeat("[", 513) + strings.Repeat("]", 513)} {
				w.heartbeat(t, v, body).WantStatus(t, 422).WantErrorText(t, "JSON")
			}
			w.Do(t, "PATCH", v.runPath(), `1`, "Content-Type", "text/plain").WantStatus(t, 415)
			w.Do(t, "PATCH", v.runPath(), `1`, "Content-Type", "").WantStatus(t, 415)
			assertEqual(t, "job", w.Do(t, "GET", jobPath("broken", "1"), "").Body, before)
			w.clock.Advance(time.Second)
			w.runMaintenance(t)
			w.wantLost(t, v)
		})
		t.Run("RL-057 state_comes_with_the_next_hand_out", func(t *testing.T) {
			w.put(t, jobBody("carried", "1", `"timeout":5`))
			w.heartbeat(t, w.claim(t, "carried"), `{"page":3}`).WantStatus(t, 202)
			w.clock.Advance(5 * time.Second)
			assertEqual(t, "state", string(w.claim(t, "carried").State), `{"page":3}`)
		})
		t.Run("RL-058 beaten_in_time_it_flies_for_ever", func(t *testing.T) {
			w.put(t, jobBody("ever", "1", `"timeout":2,"max_retries":0`))
			v := w.claim(t, "ever")
			for range 20 {
				w.clock.Advance(2*time.Second - time.Microsecond)
				w.runMaintenance(t)
				w.heartbeat(t, v, "").WantStatus(t, 202)
			}
		})
		t.Run("G-RL-18_after_the_timeout_and_before_the_sweep", func(t *testing.T) {
			w.put(t, jobBody("late", "1", `"timeout":2,"max_retries":0`))
			v := w.claim(t, "late")
			w.clock.Advance(time.Hour)
			w.heartbeat(t, v, "1").WantStatus(t, 202)
			w.runMaintenance(t)
			assertEqual(t, "in flight", *w.get(t, "late", "1").RunID, *v.RunID)
		})
	})
}

// TestRequeue is section 5.6.
func TestRequeue(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		requeue := func(t *testing.T, v jobView, mode string, specs ...string) testkit.Reply {
			t.Helper()
			return w.Do(t, "PUT", v.runPath()+"?mode="+mode, "["+strings.Join(specs, ",")+"]")
		}
		start := func(t *testing.T, queue string, extra ...string) jobView {
			t.Helper()
			w.put(t, jobBody(queue, "1", extra...))
			return w.claim(t, queue)
		}
		t.Run("RL-059 swaps_in_one_transaction", func(t *testing.T) {
			v := start(t, "swap")
			requeue(t, v, "unique", jobBody("swap", "2"), jobBody("swap-b", "3")).WantStatus(t,
				202).WantEmpty(t)
			w.wantGone(t, "swap", "1")
			w.get(t, "swap", "2")
			w.get(t, "swap-b", "3")
			w.wantLost(t, v)
		})
		t.Run("RL-060 both_or_neither", func(t *testing.T) {
			v := start(t, "neither")
			w.put(t, jobBody("neither-b", "taken"))
			requeue(t, v, "unique", jobBody("neither", "1"), jobBody("neither-b", "new"),
				jobBody("neither-b", "taken")).WantStatus(t, 409)
			assertEqual(t, "in flight", *w.get(t, "neither", "1").RunID, *v.RunID)
			w.wantGone(t, "neither-b", "new")
		})
		t.Run("RL-061 same_queue_and_id_in_mode_unique", func(t *testing.T) {
			v := start(t, "same", `"payload":1`)
			requeue(t, v, "unique", jobBody("same", "1", `"payload":2`)).WantStatus(t, 202)
			assertEqual(t, "payload", string(w.get(t, "same", "1").Payload), "2")
			w.wantLost(t, v)
			next := w.claim(t, "same")
			r := w.Do(t, "PUT", next.runPath(), "["+jobBody("same", "1")+"]") // without mode
			r.WantStatus(t, 202)
		})
		t.Run("RL-062 any_number_of_other_jobs", func(t *testing.T) {
			v := start(t, "any")
			var specs []string
			for i := range 40 {
				specs = append(specs, jobBody(fmt.Sprint("any-", i%4), fmt.Sprint(i)))
			}
			requeue(t, v, "ignore", specs...).WantStatus(t, 202)
			for i := range 4 {
				assertEqual(t, "jobs", len(w.next(t, fmt.Sprint("any-", i), 50)), 10)
			}
		})
		t.Run("RL-063 conflict_leaves_the_run_alone", func(t *testing.T) {
			v := start(t, "conflict", `"state":"s"`)
			w.put(t, jobBody("conflict-b", "taken", `"payload":"old"`))
			before := w.Do(t, "GET", jobPath("conflict", "1"), "").Body
			requeue(t, v, "unique", jobBody("conflict-b", "taken")).WantStatus(t,
				409).WantErrorText(t, "conflict-b", "taken")
			assertEqual(t, "job", w.Do(t, "GET", jobPath("conflict", "1"), "").Body, before)
			assertEqual(t, "not available", len(w.next(t, "conflict", 1)), 0)
			w.heartbeat(t, v, "2").WantStatus(t, 202)
			requeue(t, v, "unique", jobBody("conflict-b", "other")).WantStatus(t, 202)
			w.wantGone(t, "conflict", "1")
			v = start(t, "conflict")
			requeue(t, v, "unique", jobBody("conflict-b", "taken")).WantStatus(t, 409)
			w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
			w.wantGone(t, "conflict", "1")
		})
		t.Run("RL-064 ignore_deletes_the_current_one", func(t *testing.T) {
			v := start(t, "ignored")
			w.put(t, jobBody("ignored-b", "taken", `"payload":"old"`))
			requeue(t, v, "ignore", jobBody("ignored-b", "taken", `"payload":"new"`)).WantStatus(t,
				202)
			w.wantGone(t, "ignored", "1")
			assertEqual(t, "payload", string(w.get(t, "ignored-b", "taken").Payload), `"old"`)
		})
		t.Run("RL-065 replace_deletes_the_current_one", func(t *testing.T) {
			v := start(t, "replaced")
			w.put(t, jobBody("replaced-b", "taken", `"payload":"old"`))
			other := w.claim(t, "replaced-b")
			requeue(t, v, "replace", jobBody("replaced-b", "taken", `"payload":"new"`),
				jobBody("replaced", "1", `"payload":"self"`)).WantStatus(t, 202)
			assertEqual(t, "payload", string(w.get(t, "replaced-b", "taken").Payload), `"new"`)
			assertEqual(t, "self", string(w.get(t, "replaced", "1").Payload), `"self"`)
			w.wantLost(t, other)
			w.wantLost(t, v)
		})
		t.Run("RL-066 lost_run_stores_nothing", func(t *testing.T) {
			v := start(t, "lost")
			w.enqueue(t, "replace", jobBody("lost", "1", `"payload":"kept"`)).WantStatus(t, 202)
			for _, mode := range []string{"unique", "ignore", "replace"} {
				requeue(t, v, mode, jobBody("lost", "1"), jobBody("lost", "2")).WantStatus(t,
					202).WantEmpty(t)
			}
			assertEqual(t, "payload", string(w.get(t, "lost", "1").Payload), `"kept"`)
			w.wantGone(t, "lost", "2")
		})
		t.Run("RL-067 empty_array_completes", func(t *testing.T) {
			v := start(t, "nothing")
			requeue(t, v, "unique").WantStatus(t, 202).WantEmpty(t)
			w.wantGone(t, "nothing", "1")
		})
		t.Run("RL-068 requeued_job_is_new", func(t *testing.T) {
			w.put(t, jobBody("new", "1", `"timeout":5,"max_retries":3,"state":"old"`))
			w.claim(t, "new")
			w.clock.Advance(5 * time.Second)
			v := w.claim(t, "new")
			assertEqual(t, "before", number(v.RetriesRemaining), "2")
			requeue(t, v, "unique", jobBody("new", "1", `"max_retries":9`)).WantStatus(t, 202)
			got := w.get(t, "new", "1")
			assertEqual(t, "retries_remaining", number(got.RetriesRemaining), "9")
			assertEqual(t, "state", string(got.State), "null")
			assertEqual(t, "run_id", got.RunID == nil, true)
			assertEqual(t, "created_at", got.CreatedAt, w.clock.Now())
			assertEqual(t, "updated_at", got.UpdatedAt, w.clock.Now())
			v = w.claim(t, "new")
			requeue(t, v, "unique", jobBody("new", "1", `"state":"given"`)).WantStatus(t, 202)
			assertEqual(t, "state", string(w.get(t, "new", "1").State), `"given"`)
		})
		t.Run("RL-069 refusals_as_for_enqueue", func(t *testing.T) {
			v := start(t, "refused")
			requeue(t, v, "uniqe", jobBody("refused", "1")).WantStatus(t, 400).WantErrorText(t,
				"mode")
			w.Do(t, "PUT", v.runPath(), "{").WantStatus(t, 400).WantErrorText(t)
			w.Do(t, "PUT", v.runPath(), "["+jobBody("", "1")+"]").WantStatus(t,
				422).WantErrorText(t)
			w.Do(t, "PUT", v.runPath(), "[]", "Content-Type", "text/plain").WantStatus(t,
				415).WantErrorText(t)
			w.heartbeat(t, v, "").WantStatus(t, 202)
		})
		t.Run("RL-070 run_at_schedules_the_next_run", func(t *testing.T) {
			v := start(t, "repeat")
			for range 3 {
				requeue(t, v, "unique", jobBody("repeat", "1",
					at(w.clock.Now().Add(time.Hour)))).WantStatus(t, 202)
				w.clock.Advance(time.Hour - time.Microsecond)
				assertEqual(t, "before", len(w.next(t, "repeat", 1)), 0)
				w.clock.Advance(time.Microsecond)
				v = w.claim(t, "repeat")
			}
		})
	})
}

// TestDelete is sections 5.7 and 5.8.
func TestDelete(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		remove := func(t *testing.T, path string) {
			t.Helper()
			w.Do(t, "DELETE", path, "").WantStatus(t, 200).WantEmpty(t)
		}
		t.Run("RL-071 in_flight_or_not", func(t *testing.T) {
			w.put(t, jobBody("delete", "flying"))
			w.claim(t, "delete")
			w.put(t, jobBody("delete", "ready"),
				jobBody("delete", "waiting", at(w.clock.Now().Add(time.Hour))),
				jobBody("delete", "kept"))
			for _, id := range []string{"flying", "ready", "waiting"} {
				remove(t, jobPath("delete", id))
				w.wantGone(t, "delete", id)
			}
			assertEqual(t, "left", ids(w.next(t, "delete", 9)), "kept")
			w.put(t, jobBody("delete", "ready"))
		})
		t.Run("RL-072 nothing_there", func(t *testing.T) {
			remove(t, jobPath("delete", "unknown"))
			remove(t, jobPath("delete", "unknown"))
		})
		t.Run("RL-073 heartbeat_after_delete", func(t *testing.T) {
			w.put(t, jobBody("deleted", "1"))
			v := w.claim(t, "deleted")
			remove(t, jobPath("deleted", "1"))
			w.wantLost(t, v)
		})
		t.Run("RL-075 complete_removes_the_job", func(t *testing.T) {
			w.put(t, jobBody("complete", "1"))
			remove(t, w.claim(t, "complete").runPath())
			w.wantGone(t, "complete", "1")
			w.put(t, jobBody("complete", "1"))
		})
		t.Run("RL-076 another_run_id_removes_nothing", func(t *testing.T) {
			w.put(t, jobBody("another", "1"))
			v := w.claim(t, "another")
			remove(t, jobPath("another", "1")+"/run-id/12345678-1234-8123-8123-123456789abc")
			remove(t, jobPath("another", "unknown")+"/run-id/"+*v.RunID)
			remove(t, jobPath("another", "unknown")+"/run-id/00000000-0000-0000-0000-000000000000")
			assertEqual(t, "in flight", *w.get(t, "another", "1").RunID, *v.RunID)
		})
		t.Run("RL-077 completing_twice", func(t *testing.T) {
			w.put(t, jobBody("twice", "1"))
			v := w.claim(t, "twice")
			remove(t, v.runPath())
			remove(t, v.runPath())
		})
		t.Run("RL-078 replaced_or_requeued_meanwhile", func(t *testing.T) {
			w.put(t, jobBody("meanwhile", "replaced"), jobBody("meanwhile", "requeued"))
			runs := w.next(t, "meanwhile", 2)
			w.enqueue(t, "replace", jobBody("meanwhile", "replaced")).WantStatus(t, 202)
			w.Do(t, "PUT", runs[1].runPath(),
				"["+jobBody("meanwhile", "requeued")+"]").WantStatus(t, 202)
			for _, v := range runs {
				remove(t, v.runPath())
				w.get(t, "meanwhile", v.ID)
			}
			again := w.next(t, "meanwhile", 2)
			for _, v := range runs {
				remove(t, v.runPath())
			}
			for _, v := range again {
				w.heartbeat(t, v, "").WantStatus(t, 202)
			}
		})
	})
}

// TestExistsAndGet is section 5.9.
func TestExistsAndGet(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RL-080 exists", func(t *testing.T) {
			w.put(t, jobBody("exists", "1"))
			w.Do(t, "HEAD", jobPath("exists", "1"), "").WantStatus(t, 200).WantEmpty(t)
			w.Do(t, "HEAD", jobPath("exists", "2"), "").WantStatus(t, 404).WantEmpty(t)
			w.Do(t, "HEAD", jobPath("exist", "1"), "").WantStatus(t, 404).WantEmpty(t)
		})
		t.Run("RL-082 get_does_not_claim", func(t *testing.T) {
			w.put(t, jobBody("get", "1", `"max_retries":2,"state":3,"payload":"p","timeout":4`))
			v := w.get(t, "get", "1")
			assertEqual(t, "run_id", v.RunID == nil, true)
			assertEqual(t, "job", fmt.Sprint(v.Queue, v.ID, v.Timeout, number(v.MaxRetries),
				number(v.RetriesRemaining), string(v.Payload),
				string(v.State), v.RunAt, v.UpdatedAt, v.CreatedAt),
				fmt.Sprint("get", "1", 4, "2", "2", `"p"`, "3", w.clock.Now(), w.clock.Now(),
					w.clock.Now()))
			w.claim(t, "get")
			w.Do(t, "GET", jobPath("get", "2"), "").WantStatus(t, 404).WantErrorText(t)
		})
		t.Run("RL-083 null_when_not_set", func(t *testing.T) {
			w.put(t, jobBody("nulls", "1"))
			r := w.Do(t, "GET", jobPath("nulls", "1"), "").WantStatus(t, 200)
			for _, member := range []string{"max_retries", "retries_remaining", "state", "run_id"} {
				if !strings.Contains(r.Body, `"`+member+`":null`) {
					t.Errorf("%s is not null in %s", member, r.Body)
				}
			}
		})
	})
}
