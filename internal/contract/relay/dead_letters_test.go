package relay_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

type deadLetterView struct {
	ID         int64
	Queue      string
	JobID      string `json:"job_id"`
	Attempts   int
	Error      string
	Payload    json.RawMessage
	State      json.RawMessage
	FailedAt   time.Time  `json:"failed_at"`
	ReplayedAt *time.Time `json:"replayed_at"`
}

type deadLetterPage struct {
	Items []deadLetterView
	Next  *string `json:"next_cursor"`
	More  bool    `json:"has_more"`
}

func deadLettersPath(queue string) string {
	return "/v2/queues/" + url.PathEscape(queue) + "/dead-letters"
}

func replayPath(queue string, id any) string {
	return fmt.Sprintf("%s/%v/replay", deadLettersPath(queue), id)
}

// giveUp lets the next job of a queue run out of its retries.
func (w *world) giveUp(t *testing.T, queue, state string) {
	t.Helper()
	v := w.claim(t, queue)
	w.heartbeat(t, v, state).WantStatus(t, 202)
	w.clock.Advance(time.Minute)
	w.runMaintenance(t)
	w.wantGone(t, v.Queue, v.ID)
}

// lose enqueues a job that becomes a dead letter.
func (w *world) lose(t *testing.T, queue, id, payload string) {
	t.Helper()
	w.put(t, jobBody(queue, id, `"timeout":60,"max_retries":0,"payload":`+payload))
	w.giveUp(t, queue, `"at 7"`)
}

func (w *world) deadLetters(t *testing.T, queue, query string) deadLetterPage {
	t.Helper()
	return testkit.DecodeReply[deadLetterPage](t,
		w.Do(t, "GET", deadLettersPath(queue)+query, "").WantStatus(t, 200))
}

// RT-004: a producer sees the dead letters of its queue alone, oldest first and page by page.
func TestDeadLetters(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const queue = `q / "ü"`
		if got := w.deadLetters(t, queue, ""); len(got.Items) != 0 || got.Next != nil || got.More {
			t.Errorf("RT-004 of an empty queue: %+v", got)
		}
		w.lose(t, queue, "a/1", `{"n": 1.50}`)
		w.lose(t, "other", "1", `1`)
		w.lose(t, queue, "a/1", `null`)
		w.lose(t, queue, "2", `"two"`)
		first := w.deadLetters(t, queue, "?limit=2")
		if len(first.Items) != 2 || !first.More || first.Next == nil {
			t.Fatalf("RT-004 the first page is %+v", first)
		}
		got := first.Items[0]
		if got.Queue != queue || got.JobID != "a/1" || got.Attempts != 1 ||
			string(got.Payload) != `{"n": 1.50}` || string(got.State) != `"at 7"` ||
			!strings.Contains(got.Error, "at 7") || got.ReplayedAt != nil || got.FailedAt.IsZero() {
			t.Errorf("RT-004 a dead letter is %+v", got)
		}
		last := w.deadLetters(t, queue, "?cursor="+*first.Next)
		if len(last.Items) != 1 || last.More || last.Items[0].JobID != "2" {
			t.Errorf("RT-004 the last page is %+v", last)
		}
		for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?cursor=x",
			"?cursor=", "?state=dead", "?Limit=1", "?limit=1&limit=2"} {
			w.Do(t, "GET", deadLettersPath(queue)+query, "").WantStatus(t, 400).WantErrorText(t)
		}
	})
}

// RT-004: a page ends early where its dead letters are large, and none is left out.
func TestLargeDeadLetters(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	payload := `"` + strings.Repeat("x", bodyLimit-200) + `"`
	const all = 18
	for i := range all {
		w.lose(t, "large", fmt.Sprint(i), payload)
	}
	first := w.deadLetters(t, "large", "?limit=100")
	if len(first.Items) == all || !first.More {
		t.Fatalf("RT-004 the first page has %d", len(first.Items))
	}
	rest := w.deadLetters(t, "large", "?limit=100&cursor="+*first.Next)
	if len(first.Items)+len(rest.Items) != all || rest.More {
		t.Errorf("RT-004 %d and %d of %d", len(first.Items), len(rest.Items), all)
	}
}

// RT-004: a replay enqueues the job once, as its producer had, and the dead letter says so; a
// second one says that it is meant.
func TestReplay(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.put(t, jobBody("q", "1", `"timeout":60,"max_retries":1,"payload":{"n": 1.50}`))
		w.claim(t, "q")
		w.clock.Advance(time.Minute)
		w.giveUp(t, "q", `"at 7"`)
		w.wantOpen(t, "q", 1)
		l := w.deadLetters(t, "q", "").Items[0]
		answer := w.Do(t, "POST", replayPath("q", l.ID), "").WantStatus(t, 202)
		made := testkit.DecodeReply[jobView](t, answer)
		if made.ID != "1" || number(made.RetriesRemaining) != "1" || made.RunID != nil ||
			string(made.Payload) != `{"n": 1.50}` || string(made.State) != `"at 7"` {
			t.Errorf("RT-004 a replay made %+v", made)
		}
		assertEqual(t, "RT-004 enqueued", w.Do(t, "GET", jobPath("q", "1"), "").Body, answer.Body)
		w.wantOpen(t, "q", 0)
		if l = w.deadLetters(t, "q", "").Items[0]; l.ReplayedAt == nil ||
			!l.ReplayedAt.Equal(w.clock.Now()) {
			t.Errorf("RT-004 the replayed dead letter is %+v", l)
		}
		path := replayPath("q", l.ID)
		w.Do(t, "POST", path, "").WantStatus(t, 409).WantErrorText(t, "again")
		w.Do(t, "POST", path, `{"again":true}`).WantStatus(t, 409).WantErrorText(t, `id "1"`)
		w.Do(t, "DELETE", jobPath("q", "1"), "").WantStatus(t, 200)
		w.Do(t, "POST", path, ` {"again" : false} `).WantStatus(t, 409)
		w.Do(t, "POST", path, `{"again":true}`).WantStatus(t, 202)
		assertEqual(t, "RT-004 jobs", len(w.next(t, "q", 9)), 1)
		enqueued, _ := w.metric(t, "relay_enqueued_total", map[string]string{"queue": "q"})
		assertEqual(t, "RT-004 enqueued jobs", enqueued, 3)
	})
}

// wantOpen checks how many dead letters of a queue operators count as open.
func (w *world) wantOpen(t *testing.T, queue string, want int64) {
	t.Helper()
	counts, err := w.engine.Queues(t.Context(), relay.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range counts {
		if q.Queue == queue {
			assertEqual(t, "RT-004 open dead letters", q.Dead, want)
		}
	}
}

// RT-004: what is not a dead letter of the queue does not exist, and a request that is wrong
// changes nothing.
func TestReplayRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.lose(t, "q", "1", `1`)
		w.lose(t, "other", "2", `2`)
		id, foreign := w.deadLetters(t, "q", "").Items[0].ID, w.deadLetters(t, "other", "").Items[0].ID
		for _, path := range []string{replayPath("q", foreign), replayPath("q", foreign+99),
			replayPath("none", id), replayPath("q", fmt.Sprintf("0%d", id)),
			replayPath("q", -id), replayPath("q", 0), replayPath("q", "x"),
			replayPath("q", "99999999999999999999")} {
			w.Do(t, "POST", path, "", beyondDocument, "1").WantStatus(t, 404).WantErrorText(t)
		}
		path := replayPath("q", id)
		for _, body := range []string{`{"again":1}`, `{"once":true}`, `[]`, `{`, `null`} {
			w.Do(t, "POST", path, body).WantStatus(t, 400).WantErrorText(t)
		}
		w.Do(t, "POST", path, `{}`, "Content-Type", "text/plain").WantStatus(t, 415)
		w.Do(t, "POST", path+"?mode=replace", "").WantStatus(t, 400).WantErrorText(t, "mode")
		w.Do(t, "GET", path, "").WantStatus(t, 405)
		w.Do(t, "POST", deadLettersPath("q"), "").WantStatus(t, 405)
		assertEqual(t, "RT-004 replayed", w.deadLetters(t, "q", "").Items[0].ReplayedAt == nil, true)
		assertEqual(t, "RT-004 jobs", len(w.next(t, "q", 9)), 0)
	})
}

// RT-004: of replays at the same time, of producers and of operators, one makes the job.
func TestReplaysAtOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.lose(t, "q", "1", `1`)
		id := w.deadLetters(t, "q", "").Items[0].ID
		deadLetters, err := w.engine.DeadLettersByID(t.Context(), id)
		if err != nil || len(deadLetters) != 1 {
			t.Fatal(deadLetters, err)
		}
		made := 0
		for _, ok := range testkit.RunConcurrently(16, func(i int) bool {
			if i%4 == 0 {
				_, err := w.engine.ReplayDeadLetter(t.Context(), engine.Replay{
					DeadLetter: &deadLetters[0],
					Do:         w.relay.Offer().Operators[0].Replay})
				return !job.IsKind(err, job.Conflict)
			}
			return w.Do(t, "POST", replayPath("q", id), "").Status != 409
		}) {
			if ok {
				made++
			}
		}
		assertEqual(t, "RT-004 replays that made a job", made, 1)
		assertEqual(t, "RT-004 jobs", len(w.next(t, "q", 9)), 1)
	})
}

// RT-004, G-RL-24: the token of the queue's other routes is asked for.
func TestDeadLettersToken(t *testing.T) {
	t.Parallel()
	c := config()
	c.Token = relayToken("correct horse")
	w := inMemory(t, c)
	w.Do(t, "GET", deadLettersPath("q"), "").WantStatus(t, 401)
	w.Do(t, "POST", replayPath("q", 1), "").WantStatus(t, 401)
	w.Do(t, "GET", deadLettersPath("q"), "", "Authorization", "Bearer correct horse").WantStatus(t, 200)
	w.Do(t, "POST", replayPath("q", 1), "", "Authorization", "Bearer correct horse").WantStatus(t,
		404)
}

// RT-004: the Go SDK lists and replays them.
func TestSDKDeadLetters(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c, err := client.New(client.Config{BaseURL: w.URL, HTTPClient: w.Client,
		Retry: client.Retry{MaxTries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	const queue = `q / "ü"`
	for i := range 3 {
		w.lose(t, queue, fmt.Sprint(i), fmt.Sprint(i))
	}
	var deadLetters []client.RelayDeadLetter
	for l, err := range c.Relay().DeadLetters(t.Context(), queue, 2) {
		if err != nil {
			t.Fatal(err)
		}
		deadLetters = append(deadLetters, l)
	}
	if len(deadLetters) != 3 || deadLetters[2].JobID != "2" || string(deadLetters[2].Payload) != "2" ||
		deadLetters[2].ReplayedAt != nil || deadLetters[2].Attempts != 1 {
		t.Fatalf("RT-004 got %+v", deadLetters)
	}
	made, err := c.Relay().Replay(t.Context(), queue, deadLetters[1].ID, false)
	if err != nil || made.ID != "1" || made.Queue != queue {
		t.Errorf("RT-004 replayed %+v, %v", made, err)
	}
	for what, got := range map[string]error{
		"a second replay":           errorOf(c.Relay().Replay(t.Context(), queue, deadLetters[1].ID, false)),
		"a job that is there":       errorOf(c.Relay().Replay(t.Context(), queue, deadLetters[1].ID, true)),
		"a dead letter of no queue": errorOf(c.Relay().Replay(t.Context(), "none", deadLetters[0].ID, true)),
		"a queue without name":      errorOf(c.Relay().Replay(t.Context(), "", deadLetters[0].ID, true)),
	} {
		if got == nil {
			t.Errorf("RT-004 %s is no error", what)
		}
	}
	for _, err := range c.Relay().DeadLetters(t.Context(), "", 0) {
		if err == nil {
			t.Error("RT-004 a queue without name has dead letters")
		}
	}
}

func errorOf(_ client.RelayJob, err error) error { return err }
