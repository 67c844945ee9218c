package fetchbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"github.com/millrace/millrace/internal/testkit"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestLogs(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		one, other := w.submit(t, manifest(2)), w.submit(t, manifest(3))
		w.deliver(t)
		w.awaitEnd(t, one.JobID, storedOutcome)
		w.awaitEnd(t, other.JobID, storedOutcome)
		w.awaitEnd(t, one.JobID, brokeOutcome)
		w.deliver(t)
		all := w.logs(t, one.JobID, "")
		t.Run("FB-059 FB-062 FB-064 the job's entries, in order", func(t *testing.T) {
			var logText []string
			last := uint64(0)
			for _, l := range all {
				if l.JobID != one.JobID || l.Offset <= last || l.TimestampMS == 0 ||
					l.Fields == nil || l.Level == "" {
					t.Errorf("after %d: %+v", last, l)
				}
				last = l.Offset
				logText = append(logText, strings.TrimSpace(l.ResourceID+" "+l.Message))
			}
			want := []string{"the job is accepted", "r0000 the task is queued",
				"r0001 the task is queued", "the first task started",
				"r0000 the download begins", "r0000 the resource is stored",
				"r0001 the download begins",
				"r0001 the task failed and is not retried", "all tasks have finished"}
			assertEqual(t, "entries", len(logText), len(want))
			for _, line := range want {
				if !strings.Contains(strings.Join(logText, "\n")+"\n", line+"\n") {
					t.Errorf("%q is missing in\n%s", line, strings.Join(logText, "\n"))
				}
			}
			assertEqual(t, "first", logText[0], want[0])
		})
		t.Run("FB-064 every member is there", func(t *testing.T) {
			r := w.Do(t, "GET", "/operators/jobs/"+one.JobID+"/logs?limit=1", "").WantStatus(t, 200)
			assertEqual(t, "type", r.Header.Get("Content-Type"), "application/x-ndjson")
			var members map[string]any
			if err := json.Unmarshal([]byte(r.Body), &members); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"job_id", "resource_id", "level", "message", "fields",
				"timestamp_ms", "trace_id", "offset"} {
				if _, there := members[name]; !there {
					t.Errorf("%s is missing", name)
				}
			}
		})
		t.Run("FB-060 it starts at the stored cursor", func(t *testing.T) {
			for _, r := range []receipt{one, other} {
				assertEqual(t, "first", w.logs(t, r.JobID, "")[0].Offset,
					w.get(t, r.JobID).LogCursor.Offset)
			}
		})
		t.Run("FB-061 from an offset on, without gaps or repeats", func(t *testing.T) {
			for i, l := range all {
				part := w.logs(t, one.JobID, fmt.Sprintf("?since_offset=%d", l.Offset))
				assertEqual(t, "entries", len(part), len(all)-i)
				assertEqual(t, "first", part[0].Offset, l.Offset)
			}
			var again []line
			for since := uint64(0); ; {
				part := w.logs(t, one.JobID, fmt.Sprintf("?limit=2&since_offset=%d", since))
				if len(part) == 0 {
					break
				}
				again = append(again, part...)
				since = part[len(part)-1].Offset + 1
			}
			assertEqual(t, "entries", len(again), len(all))
		})
		t.Run("FB-061 behind the end there is nothing", func(t *testing.T) {
			assertEqual(t, "entries", len(w.logs(t, one.JobID,
				"?since_offset=9223372036854775807")), 0)
		})
		for _, query := range []string{"since_offset=-1", "since_offset=x", "since_offset=",
			"since_offset=1.5", "since_offset=99999999999999999999",
			"limit=0", "limit=1001", "follow=yes", "since_offset=1&since_offset=2"} {
			t.Run("FB-063 a wrong "+query, func(t *testing.T) {
				w.Do(t, "GET", "/operators/jobs/"+one.JobID+"/logs?"+query, "").WantError(t, 400,
					"INVALID_PAYLOAD")
			})
		}
		t.Run("G-FB-21 as events", func(t *testing.T) {
			r := w.Do(t, "GET", "/operators/jobs/"+one.JobID+"/logs?limit=2", "", "Accept",
				"text/event-stream").WantStatus(t, 200)
			assertEqual(t, "type", r.Header.Get("Content-Type"), "text/event-stream")
			events := strings.Split(strings.TrimSuffix(r.Body, "\n\n"), "\n\n")
			assertEqual(t, "events", len(events), 2)
			for i, e := range events {
				id, data, _ := strings.Cut(e, "\n")
				assertEqual(t, "id", id, fmt.Sprint("id: ", all[i].Offset))
				if !strings.HasPrefix(data, `data: {"job_id":"`+one.JobID) {
					t.Errorf("data %q", data)
				}
			}
		})
		t.Run("G-FB-21 behind the last event", func(t *testing.T) {
			for i, l := range all {
				for _, query := range []string{"", fmt.Sprintf("?since_offset=%d", all[0].Offset)} {
					got := w.events(t, one.JobID, query, fmt.Sprint(l.Offset))
					assertEqual(t, "events", strings.Count(got, "\n\n"), len(all)-i-1)
					assertEqual(t, "repeats",
						strings.Contains(got, fmt.Sprintf("id: %d\n", l.Offset)), false)
				}
			}
			assertEqual(t, "behind the end", w.events(t, one.JobID, "", "9223372036854775807"), "")
			assertEqual(t, "none seen", strings.Count(w.events(t, one.JobID, "", ""), "\n\n"),
				len(all))
		})
		t.Run("G-FB-21 a last event is one of events", func(t *testing.T) {
			r := w.Do(t, "GET", "/operators/jobs/"+one.JobID+"/logs", "", "Last-Event-ID",
				fmt.Sprint(all[0].Offset)).WantStatus(t, 200)
			assertEqual(t, "lines", strings.Count(r.Body, "\n"), len(all))
		})
		for _, id := range []string{"x", "-1", "1.5", "99999999999999999999"} {
			t.Run("FB-063 a wrong Last-Event-ID "+id, func(t *testing.T) {
				w.Do(t, "GET", "/operators/jobs/"+one.JobID+"/logs", "", "Accept",
					"text/event-stream", "Last-Event-ID", id).WantError(t, 400, "INVALID_PAYLOAD")
			})
		}
	})
}

// events reads the log of a job as events, behind the last one seen.
func (w *world) events(t *testing.T, id, query, last string) string {
	t.Helper()
	return w.Do(t, "GET", "/operators/jobs/"+id+"/logs"+query, "", "Accept", "text/event-stream",
		"Last-Event-ID", last).WantStatus(t, 200).Body
}

// TestLogsOfARecreatedStream: what a job has to say after its log was lost is shown, although its
// cursor is of before.
func TestLogsOfARecreatedStream(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.submit(t, manifest(10))
	w.deliver(t)
	r := w.submit(t, manifest(1))
	w.deliver(t)
	live := w.follow(t, t.Context(), r.JobID, "")
	nextLine(t, live)
	if answer, err := w.producer(t).Request("$JS.API.STREAM.DELETE.JOBS_LOGS", nil,
		10*time.Second); err != nil || !strings.Contains(string(answer.Data), `"success":true`) {
		t.Fatal(err, string(answer.Data))
	}
	assertEqual(t, "entries", len(w.logs(t, r.JobID, "")), 0)
	w.awaitEnd(t, r.JobID, storedOutcome)
	w.deliver(t)
	all := w.logs(t, r.JobID, "")
	if len(all) == 0 || all[0].Offset >= w.get(t, r.JobID).LogCursor.Offset {
		t.Fatalf("got %+v", all)
	}
	assertEqual(t, "followed", nextLine(t, w.follow(t, t.Context(), r.JobID, "")).Offset,
		all[0].Offset)
	nextLine(t, live)
	assertEqual(t, "followed live", nextLine(t, live).Offset, all[0].Offset)
	cursor := w.get(t, r.JobID).LogCursor.Offset
	assertEqual(t, "followed from the old cursor",
		nextLine(t, w.follow(t, t.Context(), r.JobID, fmt.Sprint("&since_offset=", cursor))).Offset,
		all[0].Offset)
	late := w.follow(t, t.Context(), r.JobID, "", "Accept", "text/event-stream", "Last-Event-ID",
		fmt.Sprint(cursor))
	assertEqual(t, "events behind an old one", nextEvent(t, late), all[0].Offset)
	assertEqual(t, "from the cursor", len(w.logs(t, r.JobID, fmt.Sprint("?since_offset=", cursor))),
		0)
}

// follow opens the log of a job and returns its lines; the response ends with the test. header are
// pairs.
func (w *world) follow(t *testing.T, ctx context.Context, id, query string,
	header ...string) *bufio.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		w.URL+"/operators/jobs/"+id+"/logs?follow=true"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	assertEqual(t, "status", resp.StatusCode, 200)
	assertEqual(t, "X-Accel-Buffering", resp.Header.Get("X-Accel-Buffering"), "no")
	return bufio.NewReader(resp.Body)
}

func nextLine(t *testing.T, r *bufio.Reader) (l line) {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return l
}

// nextEvent reads an event and gives its id.
func nextEvent(t *testing.T, r *bufio.Reader) (id uint64) {
	t.Helper()
	for line := ""; line != "\n"; {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if text, is := strings.CutPrefix(line, "id: "); is {
			if id, err = strconv.ParseUint(strings.TrimSpace(text), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return id
}

func TestFollow(t *testing.T) {
	t.Parallel()
	t.Run("G-FB-21 entries come as they are made", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(2))
		lines := w.follow(t, t.Context(), r.JobID, "")
		assertEqual(t, "first", nextLine(t, lines).Message, "the job is accepted")
		w.deliver(t)
		assertEqual(t, "second", nextLine(t, lines).Message, "the task is queued")
		assertEqual(t, "third", nextLine(t, lines).Message, "the task is queued")
		w.awaitEnd(t, r.JobID, storedOutcome)
		w.deliver(t)
		assertEqual(t, "fourth", nextLine(t, lines).ResourceID, "r0000")
	})
	t.Run("G-FB-21 events go on behind the last one seen", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(2))
		w.deliver(t)
		all := w.logs(t, r.JobID, "")
		// the same URL, as an EventSource asks again
		query := fmt.Sprint("&since_offset=", all[0].Offset)
		events := []string{"Accept", "text/event-stream"}
		first := w.follow(t, t.Context(), r.JobID, query, events...)
		assertEqual(t, "first", nextEvent(t, first), all[0].Offset)
		assertEqual(t, "second", nextEvent(t, first), all[1].Offset)
		again := w.follow(t, t.Context(), r.JobID, query,
			append(events, "Last-Event-ID", fmt.Sprint(all[1].Offset))...)
		assertEqual(t, "third", nextEvent(t, again), all[2].Offset)
		w.awaitEnd(t, r.JobID, storedOutcome)
		w.deliver(t)
		assertEqual(t, "one that is made later is later", nextEvent(t, again) > all[2].Offset, true)
	})
	t.Run("G-FB-21 as many as were asked for", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(5))
		w.deliver(t)
		lines := w.follow(t, t.Context(), r.JobID, "&limit=3")
		text, err := io.ReadAll(lines)
		if err != nil || strings.Count(string(text), "\n") != 3 {
			t.Errorf("got %s, %v", text, err)
		}
	})
	t.Run("G-FB-21 the header is sent before there is an entry", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(1))
		// a header that is held back never comes
		ctx, cancel := context.WithTimeout(t.Context(), testkit.WaitTimeout)
		defer cancel()
		w.follow(t, ctx, r.JobID, "&since_offset=1000000")
		w.follow(t, ctx, r.JobID, "&since_offset=1000000", "Accept", "text/event-stream")
	})
	t.Run("G-FB-21 it ends when the caller leaves", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(1))
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan struct{})
		lines := w.follow(t, ctx, r.JobID, "")
		nextLine(t, lines)
		go func() {
			defer close(ended)
			_, _ = io.ReadAll(lines)
		}()
		leave()
		<-ended
		// That the handler ends as well is what the server's Close at the end of the test waits
		// for.
	})
	t.Run("G-FB-21 it ends when the node stops", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(1))
		lines := w.follow(t, t.Context(), r.JobID, "")
		nextLine(t, lines)
		w.fetchbox.StopFollowing()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
			t.Errorf("got %s, %v", rest, err)
		}
	})
}

// TestStatusMessages: jobs.status reports every change of a job's status, once (G-FB-36).
func TestStatusMessages(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		type message struct {
			JobID       string `json:"job_id"`
			JobType     string `json:"job_type"`
			Status      string
			Total       int    `json:"resource_total"`
			Completed   int    `json:"resource_completed"`
			Failed      int    `json:"resource_failed"`
			ManifestKey string `json:"manifest_key"`
			Tenant      string
			LastError   *problem `json:"last_error"`
			Timestamp   string
		}
		r := w.submit(t, manifest(2), "X-Fetchbox-Tenant", "t")
		w.awaitEnd(t, r.JobID, storedOutcome)
		w.awaitEnd(t, r.JobID, brokeOutcome)
		w.finalize(t, 1)
		w.deliver(t)
		t.Run("FB-055 queued, in_progress, failed", func(t *testing.T) {
			var got []string
			for _, m := range read[message](t, w, "JOBS_STATUS", "jobs.status") {
				if m.JobID != r.JobID || m.JobType != gallery || m.ManifestKey != r.ManifestKey ||
					m.Tenant != "t" || m.Timestamp == "" {
					t.Errorf("got %+v", m)
				}
				got = append(got, fmt.Sprint(m.Status, m.Total, m.Completed, m.Failed,
					m.LastError != nil))
			}
			assertEqual(t, "messages", strings.Join(got, "; "),
				"queued2 0 0 false; in_progress2 0 0 false; failed2 1 1 true")
		})
	})
}
