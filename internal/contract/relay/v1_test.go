package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/testkit"
)

// clientV1 behaves as the public Go client: it escapes members of paths as if they stood in a
// query, sends updated_at as null, leaves members that are zero out, and says JSON of an empty
// body.
type clientV1 struct{ w *world }

type jobV1 struct {
	ID         string     `json:"id"`
	Queue      string     `json:"queue"`
	Timeout    int32      `json:"timeout"`
	MaxRetries int32      `json:"max_retries,omitempty"`
	Payload    any        `json:"payload"`
	State      any        `json:"state,omitempty"`
	RunAt      *time.Time `json:"run_at,omitempty"`
	UpdatedAt  *time.Time `json:"updated_at"`
}

func (c clientV1) path(queue, id string) string {
	return "/v1/queues/" + url.QueryEscape(queue) + "/jobs/" + url.QueryEscape(id)
}

func (c clientV1) send(t *testing.T, method, path string, v any) testkit.Reply {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return c.w.Do(t, method, path, string(body))
}

func (c clientV1) enqueue(t *testing.T, jobs ...jobV1) testkit.Reply {
	t.Helper()
	return c.send(t, "POST", "/v1/queues/jobs", jobs)
}

func (c clientV1) heartbeat(t *testing.T, j jobV1, state any) testkit.Reply {
	t.Helper()
	if state == nil {
		return c.w.Do(t, "PATCH", c.path(j.Queue, j.ID), "", "Content-Type", "application/json")
	}
	return c.send(t, "PATCH", c.path(j.Queue, j.ID), state)
}

func (c clientV1) next(t *testing.T, queue string, n int) (jobs []jobV1) {
	t.Helper()
	r := c.w.Do(t, "GET", fmt.Sprintf("/v1/queues/%s/jobs?num_jobs=%d", url.QueryEscape(queue), n),
		"")
	if r.Status == 204 {
		return nil
	}
	if err := json.Unmarshal([]byte(r.WantStatus(t, 200).Body), &jobs); err != nil {
		t.Fatal(err)
	}
	return jobs
}

// assertSame compares jobs as that client's tests do, without updated_at.
func assertSame(t *testing.T, got, want jobV1) {
	t.Helper()
	if got.UpdatedAt == nil {
		t.Error("there is no updated_at")
	}
	got.UpdatedAt, want.UpdatedAt = nil, nil
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	assertEqual(t, "job", string(g), string(w))
}

// TestV1 is RL-101 and G-RL-22, as the public Go client uses it.
func TestV1(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := clientV1{w}
		run := w.clock.Now().Truncate(time.Millisecond)
		t.Run("RL-101 one_time_job", func(t *testing.T) {
			j := jobV1{ID: "one time/%é+ job", Queue: "v1 queue+x", Timeout: 30, MaxRetries: 3,
				RunAt: &run}
			w.Do(t, "HEAD", c.path(j.Queue, j.ID), "").WantStatus(t, 404)
			w.Do(t, "GET", c.path(j.Queue, j.ID), "").WantStatus(t, 404)
			c.enqueue(t, j).WantStatus(t, 202).WantEmpty(t)
			w.Do(t, "HEAD", c.path(j.Queue, j.ID), "").WantStatus(t, 200).WantEmpty(t)
			var got jobV1
			if err := json.Unmarshal([]byte(w.Do(t, "GET", c.path(j.Queue, j.ID), "").WantStatus(t,
				200).Body), &got); err != nil {
				t.Fatal(err)
			}
			assertSame(t, got, j)
			c.enqueue(t, j).WantStatus(t, 409).WantErrorText(t, "one time")
			jobs := c.next(t, j.Queue, 2)
			assertEqual(t, "jobs", len(jobs), 1)
			assertSame(t, jobs[0], j)
			assertEqual(t, "none left", len(c.next(t, j.Queue, 2)), 0)
			c.heartbeat(t, j, nil).WantStatus(t, 202)
			c.heartbeat(t, j, map[string]any{"page": 7}).WantStatus(t, 202)
			c.heartbeat(t, j, nil).WantStatus(t, 202) // keeps the state
			v := w.get(t, j.Queue, j.ID)
			assertEqual(t, "state", string(v.State), `{"page":7}`)
			w.Do(t, "DELETE", c.path(j.Queue, j.ID), "").WantStatus(t, 200)
			w.Do(t, "DELETE", c.path(j.Queue, j.ID), "").WantStatus(t, 200)
			c.heartbeat(t, j, nil).WantStatus(t, 404).WantErrorText(t)
		})
		t.Run("RL-101 reschedule", func(t *testing.T) {
			j := jobV1{ID: "1", Queue: "v1-again", Timeout: 30, MaxRetries: 3, RunAt: &run}
			c.enqueue(t, j).WantStatus(t, 202)
			c.send(t, "PUT", "/v1/queues/jobs",
				jobV1{ID: "1", Queue: "v1-again", Timeout: 5}).WantStatus(t, 202)
			// it was not in flight, so nothing changed
			assertSame(t, c.next(t, "v1-again", 1)[0], j)
			later := w.clock.Now().Add(time.Hour)
			j.RunAt, j.Timeout = &later, 7
			c.send(t, "PUT", "/v1/queues/jobs", j).WantStatus(t, 202).WantEmpty(t)
			assertEqual(t, "before its time", len(c.next(t, "v1-again", 1)), 0)
			w.clock.Advance(time.Hour)
			assertSame(t, c.next(t, "v1-again", 1)[0], j)
			c.send(t, "PUT", "/v1/queues/jobs",
				jobV1{ID: "unknown", Queue: "v1-again", Timeout: 5}).WantStatus(t, 202)
			w.wantGone(t, "v1-again", "unknown")
		})
		t.Run("RL-101 several_jobs_are_ignored_when_there", func(t *testing.T) {
			a, b := jobV1{ID: "a", Queue: "v1-many", Timeout: 30, RunAt: &run},
				jobV1{ID: "b", Queue: "v1-many", Timeout: 30, RunAt: &run}
			c.enqueue(t, a).WantStatus(t, 202)
			c.enqueue(t, a, b).WantStatus(t, 202)
			assertEqual(t, "jobs", len(c.next(t, "v1-many", 3)), 2)
			c.enqueue(t, []jobV1{}...).WantStatus(t, 202).WantEmpty(t)
		})
		t.Run("G-RL-29_members_left_out_and_minus_one", func(t *testing.T) {
			w.Do(t, "POST", "/v1/queues/jobs",
				`[{"queue":"v1-out","id":"1","timeout":5}]`).WantStatus(t, 202)
			v := w.get(t, "v1-out", "1")
			assertEqual(t, "payload", string(v.Payload), "null")
			assertEqual(t, "max_retries", number(v.MaxRetries), "0")
			w.Do(t, "POST", "/v1/queues/jobs",
				`[{"queue":"v1-out","id":"2","timeout":5,"max_retries":-1}]`).WantStatus(t, 202)
			assertEqual(t, "max_retries", number(w.get(t, "v1-out", "2").MaxRetries), "null")
			if r := w.Do(t, "GET", "/v1/queues/v1-out/jobs/2", ""); !strings.Contains(r.Body,
				`"max_retries":-1,`) {
				t.Errorf("got %s", r.Body)
			}
			w.Do(t, "PUT", "/v1/queues/jobs", `{"queue":"v1-out","id":"3"}`).WantStatus(t,
				400).WantErrorText(t, "timeout")
			w.Do(t, "PUT", "/v1/queues/jobs", `[]`).WantStatus(t, 400).WantErrorText(t, "object")
			w.Do(t, "PUT", "/v1/queues/jobs", `{`).WantStatus(t, 400).WantErrorText(t, "JSON")
			w.Do(t, "PUT", "/v1/queues/jobs", `{}`, "Content-Type", "text/plain").WantStatus(t, 415)
		})
	})
}

// TestV1Forms: version 1 takes the numbers and times that its original takes.
func TestV1Forms(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		n := 0
		post := func(t *testing.T, member string) (r testkit.Reply, id string) {
			t.Helper()
			n++
			id = fmt.Sprint(n)
			job := fmt.Sprintf(`{"queue":"v1-forms","id":%q,%s}`, id, member)
			return w.Do(t, "POST", "/v1/queues/jobs", "["+job+"]"), id
		}
		t.Run("G-RL-29_numbers", func(t *testing.T) {
			for _, c := range []struct{ retries, timeout, wantRetries, wantTimeout string }{
				{"-1", "5", "null", "5"}, {"-2", "0", "null", "0"}, {"-32769", "-1", "null", "0"},
				{"-9999999999999999999999", "-9999999999999999999999", "null", "0"},
				{"0", "2147483647", "0", "2147483647"},
				{"32767", "-0", "32767", "0"}, {"32768", "1e1", "32767", "10"},
				{"99999999999999999999", "5.0", "32767", "5"},
			} {
				r, id := post(t, fmt.Sprintf(`"timeout":%s,"max_retries":%s`, c.timeout, c.retries))
				r.WantStatus(t, 202)
				v := w.get(t, "v1-forms", id)
				assertEqual(t, "max_retries "+c.retries, number(v.MaxRetries), c.wantRetries)
				assertEqual(t, "timeout "+c.timeout, fmt.Sprint(v.Timeout), c.wantTimeout)
			}
			for member, status := range map[string]int{`"timeout":2147483648`: 422,
				`"timeout":1e400`: 422, `"timeout":1.5`: 400,
				`"timeout":"5"`: 400, `"timeout":5,"max_retries":0.5`: 400,
				`"timeout":5,"max_retries":"1"`: 400} {
				r, _ := post(t, member)
				r.WantStatus(t, status).WantErrorText(t)
			}
		})
		t.Run("G-RL-29_run_at", func(t *testing.T) {
			for text, want := range map[string]string{
				`"2022-09-05T04:37:23Z"`:           "2022-09-05T04:37:23Z",
				`"2022-09-05 04:37:23"`:            "2022-09-05T04:37:23Z",
				`"2022-09-05 04:37:23.25"`:         "2022-09-05T04:37:23.25Z",
				`"2022-09-05 04:37:23+02:00"`:      "2022-09-05T02:37:23Z",
				`"2022-09-05 04:37:23 +0200"`:      "2022-09-05T02:37:23Z",
				`"2022-09-05 04:37:23 UTC"`:        "2022-09-05T04:37:23Z",
				`"2022-09-05 04:37"`:               "2022-09-05T04:37:00Z",
				`"2022-09-05T04:37:23"`:            "2022-09-05T04:37:23Z",
				`"2022-09-05"`:                     "2022-09-05T00:00:00Z",
				`"2022/09/05"`:                     "2022-09-05T00:00:00Z",
				`"2022/09/05 04:37:23"`:            "2022-09-05T04:37:23Z",
				`"1662352643"`:                     "2022-09-05T04:37:23Z",
				`1662352643`:                       "2022-09-05T04:37:23Z",
				`1662352643123`:                    "2022-09-05T04:37:23.123Z",
				`"1662352643123456"`:               "2022-09-05T04:37:23.123456Z",
				`"1662352643123456789"`:            "2022-09-05T04:37:23.123456Z",
				`0`:                                "1970-01-01T00:00:00Z",
				`"Mon, 5 Sep 2022 04:37:23 +0200"`: "2022-09-05T02:37:23Z",
				`"Mon, 05 Sep 2022 04:37:23 GMT"`:  "2022-09-05T04:37:23Z",
				`"5 Sep 2022 04:37 -0700"`:         "2022-09-05T11:37:00Z",
				`"Mon, 05 Sep 2022 04:37:23 EST"`:  "2022-09-05T09:37:23Z",
			} {
				r, id := post(t, `"timeout":5,"run_at":`+text)
				r.WantStatus(t, 202)
				at := w.get(t, "v1-forms", id).RunAt
				assertEqual(t, "run_at "+text, at.UTC().Format(time.RFC3339Nano), want)
			}
			for _, text := range []string{`"tomorrow"`, `""`, `" "`, `"2022-13-05"`,
				`"2022-09-05 25:00:00"`, `true`, `[]`, `-5`, `1.5`,
				`"9999999999999999999"`, `"99999999999999999999"`,
				`"Mon, 05 Sep 2022 04:37:23 XYZ"`, `"0000-01-01 00:00:00+23:00"`,
				`"\ud800"`} {
				r, _ := post(t, `"timeout":5,"run_at":`+text)
				r.WantStatus(t, 400).WantErrorText(t, "run_at")
			}
		})
		t.Run("RL-011_version_2_takes_RFC_3339_alone", func(t *testing.T) {
			for _, text := range []string{`"2022-09-05 04:37:23"`, `"2022-09-05"`, `1662352643`} {
				w.enqueue(t, "", jobBody("v2-forms", "1", `"run_at":`+text)).WantStatus(t,
					400).WantErrorText(t, "RFC 3339")
			}
		})
	})
}

// FuzzV1: whatever is read as a time by version 1 can be shown as one.
func FuzzV1(f *testing.F) {
	for _, seed := range []string{"2022-09-05 04:37:23", "1662352643",
		"Mon, 5 Sep 2022 04:37:23 EST", " ", "99999999999999999", "2022-09-05"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		at, err := relay.ReadRunAtV1(quoted)
		if err != nil {
			return
		}
		if shown := at.Format(time.RFC3339Nano); at.Location() != time.UTC ||
			len(shown) < len("2006-01-02T15:04:05Z") {
			t.Fatalf("%q is read as %s", text, shown)
		}
	})
}

// TestV1Off: without version 1 its paths are not found.
func TestV1Off(t *testing.T) {
	t.Parallel()
	off := config()
	off.V1 = false
	w := inMemory(t, off)
	w.Client = &http.Client{} // the document describes both versions
	t.Run("G-RL-29_paths_are_not_relays", func(t *testing.T) {
		r := w.Do(t, "POST", "/v1/queues/jobs", "[]").WantStatus(t, 404)
		if r.Header.Get("X-Request-Id") != "" {
			t.Error("the mount answered")
		}
		w.put(t, jobBody("q", "1"))
	})
}
