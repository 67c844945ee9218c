package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestJob is section 5.1, the job's members.
func TestJob(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("identity", func(t *testing.T) { testIdentity(t, w) })
		t.Run("numbers", func(t *testing.T) { testNumbers(t, w) })
		t.Run("bodies", func(t *testing.T) { testBodies(t, w) })
		t.Run("times", func(t *testing.T) { testTimes(t, w) })
	})
}

func testIdentity(t *testing.T, w *world) {
	t.Run("RL-001 same_id_in_two_queues", func(t *testing.T) {
		w.put(t, jobBody("id-a", "same", `"payload":1`))
		w.put(t, jobBody("id-b", "same", `"payload":2`))
		w.enqueue(t, "", jobBody("id-a", "same")).WantStatus(t, 409)
		assertEqual(t, "payload", string(w.get(t, "id-a", "same").Payload), "1")
		assertEqual(t, "payload", string(w.get(t, "id-b", "same").Payload), "2")
	})
	for _, c := range []struct {
		name, character string
	}{{"ascii", "x"}, {"four_bytes_each", "😀"}} {
		long := strings.Repeat(c.character, 1024)
		t.Run("RL-002 queue_1024_"+c.name, func(t *testing.T) {
			w.put(t, jobBody(long, c.name))
			assertEqual(t, "queue", w.get(t, long, c.name).Queue, long)
			assertEqual(t, "next", w.claim(t, long).Queue, long)
			w.enqueue(t, "", jobBody(long+c.character, "1")).WantStatus(t, 422).WantErrorText(t,
				"queue", "1024")
		})
		t.Run("RL-003 id_1024_"+c.name, func(t *testing.T) {
			w.put(t, jobBody("long-"+c.name, long))
			assertEqual(t, "id", w.get(t, "long-"+c.name, long).ID, long)
			w.enqueue(t, "", jobBody("long-"+c.name, long+c.character)).WantStatus(t,
				422).WantErrorText(t, "id", "1024")
			w.put(t, jobBody(long, long)) // the longest path there is
			for _, v := range w.next(t, long, 5) {
				w.heartbeat(t, v, "1").WantStatus(t, 202)
				w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
			}
			w.wantGone(t, long, long)
		})
	}
	t.Run("RL-010 run_id_is_a_uuid", func(t *testing.T) {
		w.put(t, jobBody("run-id", "1"))
		if v := w.get(t, "run-id", "1"); v.RunID != nil {
			t.Errorf("run id %s before any claim", *v.RunID)
		}
		v := w.claim(t, "run-id")
		if _, err := uuid.Parse(*v.RunID); err != nil {
			t.Error(err)
		}
		assertEqual(t, "run id read", *w.get(t, "run-id", "1").RunID, *v.RunID)
		w.clock.Advance(31 * time.Second)
		w.runMaintenance(t)
		if v := w.get(t, "run-id", "1"); v.RunID != nil {
			t.Errorf("run id %s after the timeout", *v.RunID)
		}
	})
	t.Run("RL-015 unknown_members_are_ignored", func(t *testing.T) {
		w.put(t, jobBody("unknown", "1",
			`"updated_at":null,"run_id":"x","created_at":7,"Queue":"other","retries_remaining":99,"\u0000":[]`))
		v := w.get(t, "unknown", "1")
		assertEqual(t, "retries_remaining", number(v.RetriesRemaining), "null")
		assertEqual(t, "created_at", v.CreatedAt, w.clock.Now())
	})
	t.Run("RL-016 required_members", func(t *testing.T) {
		all := []string{`"queue":"required"`, `"id":"1"`, `"timeout":1`, `"payload":null`}
		for i := range all {
			var rest []string
			for k, m := range all {
				if k != i {
					rest = append(rest, m)
				}
			}
			name, _, _ := strings.Cut(strings.Trim(all[i], `"`), `"`)
			w.enqueue(t, "", "{"+strings.Join(rest, ",")+"}").WantStatus(t, 400).WantErrorText(t,
				name, "missing")
		}
		w.put(t, "{"+strings.Join(all, ",")+"}")
	})
}

func testNumbers(t *testing.T, w *world) {
	for _, c := range []struct {
		id, members string
		status      int
		timeout     int
		retries     string
	}{
		{"RL-004 timeout_0", `"timeout":0`, 202, 0, "null"},
		{"RL-004 timeout_largest", `"timeout":2147483647`, 202, 2147483647, "null"},
		{"RL-004 timeout_1.0_is_whole", `"timeout":1.0`, 202, 1, "null"},
		{"RL-004 timeout_1e1_is_whole", `"timeout":1e1`, 202, 10, "null"},
		{"RL-004 timeout_negative", `"timeout":-1`, 422, 0, ""},
		{"RL-004 timeout_too_large", `"timeout":2147483648`, 422, 0, ""},
		{"RL-004 timeout_far_too_large", `"timeout":1e400`, 422, 0, ""},
		{"RL-004 timeout_fraction", `"timeout":1.5`, 400, 0, ""},
		{"RL-004 timeout_string", `"timeout":"1"`, 400, 0, ""},
		{"RL-004 timeout_null", `"timeout":null`, 400, 0, ""},
		{"RL-005 max_retries_absent", `"timeout":1`, 202, 1, "null"},
		{"RL-005 max_retries_null", `"timeout":1,"max_retries":null`, 202, 1, "null"},
		{"RL-005 max_retries_0", `"timeout":1,"max_retries":0`, 202, 1, "0"},
		{"RL-005 max_retries_largest", `"timeout":1,"max_retries":32767`, 202, 1, "32767"},
		{"RL-005 max_retries_negative", `"timeout":1,"max_retries":-1`, 422, 0, ""},
		{"RL-005 max_retries_too_large", `"timeout":1,"max_retries":32768`, 422, 0, ""},
		{"RL-005 max_retries_string", `"timeout":1,"max_retries":"1"`, 400, 0, ""},
		{"RL-005 max_retries_fraction", `"timeout":1,"max_retries":0.5`, 400, 0, ""},
	} {
		t.Run(c.id, func(t *testing.T) {
			r := w.enqueue(t, "", jobBody("numbers", c.id, c.members)).WantStatus(t, c.status)
			if c.status != 202 {
				r.WantErrorText(t)
				w.wantGone(t, "numbers", c.id)
				return
			}
			v := w.get(t, "numbers", c.id)
			assertEqual(t, "timeout", v.Timeout, c.timeout)
			assertEqual(t, "max_retries", number(v.MaxRetries), c.retries)
			assertEqual(t, "RL-006 retries_remaining", number(v.RetriesRemaining), c.retries)
		})
	}
	t.Run("RL-006 retries_remaining_starts_at_max_retries", func(t *testing.T) {
		w.put(t, jobBody("starts", "1", `"max_retries":7`))
		v := w.claim(t, "starts")
		assertEqual(t, "retries_remaining", number(v.RetriesRemaining), "7")
	})
}

func testBodies(t *testing.T, w *world) {
	values := map[string]string{
		"null": `null`, "string": `"a\u0000b\ud83d\ude00ü\/"`,
		"big": `123456789012345678901234567890`, "i64": `9007199254740993`,
		"decimal": `0.1000000000000000055511151231257827`, "exponent": `1E-400`,
		"minus_zero": `-0.0`, "array": `[1,[2,[3]],{}]`,
		"order": `{"b":1,"a":{"z":null,"y":[true,false]},"b":2}`, "space": `{ "a" : 1 ,  "b":2 }`,
		"false": `false`,
		"deep":  strings.Repeat("[", 500) + strings.Repeat("]", 500), "surrogate": `"\ud800"`,
		"large": `"` + strings.Repeat("0123456789", 10_000) + `"`,
	}
	for name, value := range values {
		t.Run("RL-009 "+name+"_comes_back_as_sent", func(t *testing.T) {
			w.put(t, jobBody("bodies-"+name, "1", `"payload":`+value+`,"state":`+value))
			for _, v := range []jobView{w.get(t, "bodies-"+name, "1"), w.claim(t, "bodies-"+name)} {
				assertEqual(t, "RL-007 payload", string(v.Payload), value)
				assertEqual(t, "RL-008 state", string(v.State), value)
			}
		})
	}
	t.Run("RL-007 payload_never_changes", func(t *testing.T) {
		w.put(t, jobBody("payload", "1", `"payload":{"a":1}`))
		v := w.claim(t, "payload")
		w.heartbeat(t, v, `{"b":2}`).WantStatus(t, 202)
		w.clock.Advance(31 * time.Second)
		assertEqual(t, "payload", string(w.claim(t, "payload").Payload), `{"a":1}`)
	})
	t.Run("RL-008 state_is_optional_and_changed_by_heartbeats", func(t *testing.T) {
		w.put(t, jobBody("state", "1"))
		v := w.claim(t, "state")
		assertEqual(t, "state", string(v.State), "null")
		for _, state := range []string{`{"at":1}`, `"two"`, `3`, `[4]`, `false`} {
			w.heartbeat(t, v, state).WantStatus(t, 202)
			assertEqual(t, "state", string(w.get(t, "state", "1").State), state)
		}
	})
	t.Run("G-RL-26_last_member_wins", func(t *testing.T) {
		w.put(t, `{"queue":7,"queue":"twice","id":"1","timeout":"x","timeout":5,"payload":1,"payload":2}`)
		v := w.get(t, "twice", "1")
		assertEqual(t, "timeout", v.Timeout, 5)
		assertEqual(t, "payload", string(v.Payload), "2")
	})
}

func testTimes(t *testing.T, w *world) {
	now := w.clock.Now()
	for _, c := range []struct{ id, sent, got string }{
		{"RL-011 utc", `"2030-01-02T03:04:05Z"`, "2030-01-02T03:04:05Z"},
		{"RL-011 offset_becomes_utc", `"2030-01-02T03:04:05+02:00"`, "2030-01-02T01:04:05Z"},
		{"RL-011 null_is_now", `null`, ""},
		{"RL-014 milliseconds", `"2030-01-02T03:04:05.678Z"`, "2030-01-02T03:04:05.678Z"},
		{"RL-014 microseconds", `"2030-01-02T03:04:05.678901Z"`, "2030-01-02T03:04:05.678901Z"},
		{"RL-014 beyond_microseconds_is_cut", `"2030-01-02T03:04:05.6789019Z"`,
			"2030-01-02T03:04:05.678901Z"},
		{"RL-011 zero_time_of_go", `"0001-01-01T00:00:00Z"`, "0001-01-01T00:00:00.000001Z"},
		{"RL-011 first_year", `"0000-01-01T00:00:00Z"`, "0000-01-01T00:00:00Z"},
		{"RL-011 last_year", `"9999-12-31T23:59:59.999999Z"`, "9999-12-31T23:59:59.999999Z"},
	} {
		t.Run(c.id, func(t *testing.T) {
			w.put(t, jobBody("times", c.id, `"run_at":`+c.sent))
			if c.got == "" {
				c.got = w.clock.Now().Format(time.RFC3339Nano)
			}
			r := w.Do(t, "GET", jobPath("times", c.id), "").WantStatus(t, 200)
			if !strings.Contains(r.Body, fmt.Sprintf(`"run_at":%q`, c.got)) {
				t.Errorf("got %s, want %s", r.Body, c.got)
			}
		})
	}
	t.Run("RL-011 default_is_now", func(t *testing.T) {
		w.put(t, jobBody("now", "1"))
		assertEqual(t, "run_at", w.get(t, "now", "1").RunAt, now)
	})
	for _, bad := range []string{`"tomorrow"`, `"2030-01-02"`, `"2030-01-02 03:04:05Z"`,
		`"2030-02-30T00:00:00Z"`, `7`, `{}`, `""`} {
		t.Run("G-RL-25_run_at_"+bad, func(t *testing.T) {
			w.enqueue(t, "", jobBody("times", "bad", `"run_at":`+bad)).WantStatus(t,
				400).WantErrorText(t, "run_at")
		})
	}
	t.Run("RL-012 updated_at_moves", func(t *testing.T) {
		w.put(t, jobBody("updated", "1"))
		last := w.get(t, "updated", "1").UpdatedAt
		assertEqual(t, "at first", last, w.clock.Now())
		moved := func(what string) {
			t.Helper()
			if got := w.get(t, "updated", "1").UpdatedAt; !got.After(last) || got != w.clock.Now() {
				t.Errorf("%s: updated_at is %s at %s", what, got, w.clock.Now())
			} else {
				last = got
			}
			w.clock.Advance(time.Second)
		}
		w.clock.Advance(time.Second)
		v := w.claim(t, "updated")
		moved("next")
		w.heartbeat(t, v, "").WantStatus(t, 202)
		moved("heartbeat")
		w.heartbeat(t, v, "1").WantStatus(t, 202)
		moved("heartbeat with state")
		w.clock.Advance(time.Minute)
		w.runMaintenance(t)
		moved("G-RL-16 timeout")
		w.enqueue(t, "replace", jobBody("updated", "1")).WantStatus(t, 202)
		moved("replace")
	})
	t.Run("RL-013 created_at_is_of_enqueue_and_requeue", func(t *testing.T) {
		w.put(t, jobBody("created", "1"))
		first := w.clock.Now()
		w.clock.Advance(time.Second)
		w.enqueue(t, "replace", jobBody("created", "1")).WantStatus(t, 202)
		assertEqual(t, "G-RL-15 kept by replace", w.get(t, "created", "1").CreatedAt, first)
		v := w.claim(t, "created")
		assertEqual(t, "kept by next", v.CreatedAt, first)
		w.clock.Advance(time.Second)
		w.Do(t, "PUT", v.runPath(), "["+jobBody("created", "1")+"]").WantStatus(t, 202)
		assertEqual(t, "anew by requeue", w.get(t, "created", "1").CreatedAt, w.clock.Now())
	})
}
