package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacedCountsFromTheMeantTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// One goroutine, ten a second, and the second operation stalls for 250 ms: the next ones
		// were quick, and late all the same.
		started := time.Now()
		var starts []time.Duration
		meant, began, err := runPaced(t.Context(), 1, 5, 10,
			func(ctx context.Context, _, i int) error {
				starts = append(starts, time.Since(started))
				if i == 1 {
					return sleep(ctx, 250*time.Millisecond)
				}
				return sleep(ctx, 10*time.Millisecond)
			})
		if err != nil {
			t.Fatal(err)
		}
		ms := func(values ...int) (all []time.Duration) {
			for _, v := range values {
				all = append(all, time.Duration(v)*time.Millisecond)
			}
			return all
		}
		if want := ms(0, 100, 350, 360, 400); !slices.Equal(starts, want) {
			t.Errorf("operations began after %v, want %v", starts, want)
		}
		if want := ms(10, 250, 160, 70, 10); !slices.Equal(meant, want) {
			t.Errorf("from the meant time %v, want %v", meant, want)
		}
		if want := ms(10, 250, 10, 10, 10); !slices.Equal(began, want) {
			t.Errorf("from the beginning %v, want %v", began, want)
		}
	})
}

func TestPacedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ran := 0
		_, _, err := runPaced(ctx, 1, 1000, 2, func(context.Context, int, int) error {
			ran++
			return nil
		})
		if err == nil || ran > 3 {
			t.Errorf("%d operations ran and err = %v, want those of the first second and an error",
				ran, err)
		}
	})
}

// reportOf is a report whose events are so long after zero.
func reportOf(t *testing.T, outcome string, zero time.Time,
	events map[string]time.Duration) (r forgeReport) {
	t.Helper()
	all := []map[string]any{}
	for name, after := range events {
		all = append(all, map[string]any{"event_name": name, "timestamp": zero.Add(after)})
	}
	text, err := json.Marshal(map[string]any{"outcome": outcome, "events": all})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReportNeedsItsEventOnce(t *testing.T) {
	t.Parallel()
	zero := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	good := reportOf(t, "SUCCESS", zero,
		map[string]time.Duration{"job_created": 0, "job_started": time.Second})
	if at, err := good.timeOf("job_started"); err != nil || !at.Equal(zero.Add(time.Second)) {
		t.Errorf("job_started = %v, %v; want a second after the first event", at, err)
	}
	if _, err := good.timeOf("job_queued"); err == nil {
		t.Error("an event that is not there was found")
	}
	twice := good
	twice.Events = append(twice.Events, twice.Events...)
	if _, err := twice.timeOf("job_started"); err == nil {
		t.Error("a job that started twice passed")
	}
	failed := reportOf(t, "FAILURE", zero, map[string]time.Duration{"job_started": 0})
	if _, err := failed.timeOf("job_started"); err == nil {
		t.Error("a job that failed passed")
	}
}

func TestLate(t *testing.T) {
	t.Parallel()
	jobs := spreadJobs(time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC), 4, 2*time.Second)
	if got, want := jobs[3].due, time.Date(2026, 1, 2, 3, 4, 6, 500_000_000,
		time.UTC); !got.Equal(want) {
		t.Fatalf("the last of four is due at %v, want %v", got, want)
	}
	after := func(by ...time.Duration) (reports []forgeReport) {
		for i, d := range by {
			reports = append(reports, reportOf(t, "SUCCESS", jobs[i].due,
				map[string]time.Duration{"job_queued": d}))
		}
		return reports
	}
	by := []time.Duration{0, 3 * time.Millisecond, -maxEarly, time.Minute}
	phase, err := latenessPhase("queued", "job_queued", jobs, after(by...))
	if err != nil || !slices.Equal(phase.Latency, by) {
		t.Errorf("late by %v (%v), want %v: a second early is allowed", phase.Latency, err, by)
	}
	by[1] = -maxEarly - time.Millisecond
	if _, err := latenessPhase("queued", "job_queued", jobs, after(by...)); err == nil ||
		!strings.Contains(err.Error(), "before its time") {
		t.Errorf("err = %v, want one that says that a job was too early", err)
	}
}

func TestSubmission(t *testing.T) {
	t.Parallel()
	s := &forgeServer{millraceServer: &millraceServer{addr: "127.0.0.1:1"}, key: "secret"}
	due := time.Date(2026, 1, 2, 3, 4, 5, 60_000_000, time.UTC)
	for name, tc := range map[string]struct {
		request  []byte
		typ, due string
	}{
		"at once": {s.submission(7, time.Time{}), "EXECUTE", ""},
		"later":   {s.submission(7, due), "DEFERRED", "2026-01-02T03:04:05.06Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, body, _ := strings.Cut(string(tc.request), "\r\n\r\n")
			if !strings.HasPrefix(head, "POST /v1/jobs HTTP/1.1\r\n") ||
				!strings.Contains(head, "\r\nAuthorization: Bearer secret") {
				t.Errorf("the head is %q", head)
			}
			var sent map[string]string
			if err := json.Unmarshal([]byte(body), &sent); err != nil {
				t.Fatal(err)
			}
			if sent["type"] != tc.typ || sent["execution_at"] != tc.due ||
				sent["idempotency_key"] == "" {
				t.Errorf("the body is %s, want type %s and execution_at %q", body, tc.typ, tc.due)
			}
		})
	}
}

func TestMember(t *testing.T) {
	t.Parallel()
	body := []byte(`{"job_id":"a-b","state":"CREATED"}`)
	if got := member(body, "state"); got != "CREATED" {
		t.Errorf("state = %q, want CREATED", got)
	}
	if got := member(body, "api_key"); got != "" {
		t.Errorf("what is not there = %q, want nothing", got)
	}
}
