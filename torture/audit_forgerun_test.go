package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// forgeScene is a job of ForgeRun that succeeded, with its report and its deliveries.
func forgeScene() *scene {
	s := newScene()
	s.add(0, op{Contract: forgerun, Verb: "submit", Key: "g1",
		Made: []made{{Job: "id", Name: "g1", Queue: "client-0"}}})
	events := []forgeEvent{{"e1", "", "CREATED"}, {"e2", "CREATED", "QUEUED"},
		{"e3", "QUEUED", "ASSIGNED"}, {"e4", "ASSIGNED", "RUNNING"},
		{"e5", "RUNNING", "SUCCEEDED"}}
	s.final.Forge = map[string]forgeJob{"id": {"client-0", "SUCCEEDED", true, events}}
	s.final.Events = map[string][]forgeEvent{"id": slices.Clone(events)}
	s.final.Deliveries = map[string][]delivery{"client-0": nil, "client-1": nil}
	for _, e := range events {
		s.final.Deliveries["client-0"] = append(s.final.Deliveries["client-0"], delivery{e.ID,
			"id", e.Prev, e.Next, true, false})
	}
	s.final.Rows = []row{{forgerun, "default", "id", "finished", "SUCCEEDED"}}
	return s
}

// TestAuditOfForgeRun is TestAuditOfRelay for events, reports, webhooks and clients.
func TestAuditOfForgeRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*scene)
		want   []string // the beginnings of all violations
	}{
		{"as it should be", func(*scene) {}, nil},
		{"lost", func(s *scene) { s.final.Forge, s.final.Rows = nil, nil },
			[]string{"I1"}},
		{"an event is missing", func(s *scene) {
			s.final.Events["id"] = slices.Delete(s.final.Events["id"], 1, 2)
		}, []string{"I13", "I14"}},
		{"no report", func(s *scene) {
			j := s.final.Forge["id"]
			j.HasReport = false
			s.final.Forge["id"] = j
		}, []string{"I14"}},
		{"not delivered", func(s *scene) {
			s.final.Deliveries["client-0"] = s.final.Deliveries["client-0"][:4]
		}, []string{"I11"}},
		{"refused and not delivered again", func(s *scene) {
			s.final.Deliveries["client-0"][2].Accepted = false
		}, []string{"I11"}},
		{"delivered out of order", func(s *scene) {
			slices.Reverse(s.final.Deliveries["client-0"])
		}, []string{"I11"}},
		{"delivered twice", func(s *scene) {
			all := s.final.Deliveries["client-0"]
			s.final.Deliveries["client-0"] = append(all, all[1])
		}, nil},
		{"not signed", func(s *scene) { s.final.Deliveries["client-0"][0].Forged = true },
			[]string{"I11"}},
		{"delivered to another client", func(s *scene) {
			s.final.Deliveries["client-1"] = s.final.Deliveries["client-0"][:1]
		}, []string{"I10"}},
		{"read by another client", func(s *scene) {
			s.add(0, op{Contract: forgerun, Verb: "foreign", Job: "id"})
		}, []string{"I10"}},
		{"canceled by another client", func(s *scene) {
			s.add(0, op{Contract: forgerun, Verb: "cancel", Job: "id", Queue: "client-1"})
		}, []string{"I10"}},
		{"a cancel that is lost", func(s *scene) {
			s.add(0, op{Contract: forgerun, Verb: "cancel", Job: "id", Queue: "client-0",
				Body: "CANCELED"})
		}, []string{"I1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := forgeScene()
			c.change(s)
			var v violations
			check(s.ops, &s.final, &v)
			if !slices.EqualFunc(v.kinds(), c.want, strings.HasPrefix) {
				t.Errorf("found %q, want %q", v.examples, c.want)
			}
		})
	}
}

// TestAuditOfRate: a minute of the clock has no more accepted requests of the limited client than
// it may send. What is unknown, refused, of other clients, or of two minutes is not counted.
func TestAuditOfRate(t *testing.T) {
	t.Parallel()
	const minute = 60_000_000
	begin := time.Date(2031, 1, 1, 0, 1, 0, 0, time.UTC).UnixMicro()
	submit := func(n int, at, took int64, client string, status int) (all []*op) {
		for range n {
			all = append(all, &op{Contract: forgerun, Verb: "submit", Status: status,
				Class: classOf(status), Invoked: at, Returned: at + took,
				Made: []made{{Queue: client}}})
		}
		return all
	}
	limit := submit(clientRate, begin, minute-1, limitedClient, http.StatusCreated)
	for _, c := range []struct {
		name string
		more []*op
		want int
	}{
		{"the limit", nil, 0},
		{"one more", submit(1, begin+minute-1, 0, limitedClient, http.StatusCreated), 1},
		{"the minute before", submit(1, begin-1, 0, limitedClient, http.StatusCreated), 0},
		{"the minute after", submit(1, begin+minute, 0, limitedClient, http.StatusCreated), 0},
		{"from before", submit(1, begin-1, 2, limitedClient, http.StatusCreated), 0},
		{"until after", submit(1, begin, minute, limitedClient, http.StatusCreated), 0},
		{"refused", submit(9, begin, 1, limitedClient, http.StatusTooManyRequests), 0},
		{"unknown", submit(9, begin, 1, limitedClient, http.StatusServiceUnavailable), 0},
		{"another client", submit(9, begin, 1, "client-0", http.StatusCreated), 0},
		{"two minutes", append(submit(clientRate+1, begin+minute, 1, limitedClient,
			http.StatusCreated), submit(9, begin, 1, limitedClient, http.StatusCreated)...), 2},
	} {
		var v violations
		a := &audit{violations: &v, ops: slices.Concat(limit, c.more)}
		if a.checkRate(); v.counts["I18 bounded"] != c.want || a.limited.Accepted < clientRate {
			t.Errorf("%s: %v, want %d: %+v", c.name, v.examples, c.want, a.limited)
		}
	}
}

// TestLostBeforeTheLoad: a key that was acknowledged and is refused is a violation, and the run
// goes on when it is there.
func TestLostBeforeTheLoad(t *testing.T) {
	t.Parallel()
	keys := []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Authorization"))
		if len(keys) == 1 {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte(`{"id":"7"}`))
	}))
	defer server.Close()
	r := &run{client: server.Client(), nodes: []*node{{url: server.URL}}}
	var made struct{ ID string }
	if err := r.write(t.Context(), http.MethodPost, "/v1/webhooks", map[string]any{}, &made,
		"k"); err != nil || made.ID != "7" {
		t.Errorf("got %q: %v", made.ID, err)
	}
	if kinds := r.violations.kinds(); len(kinds) != 1 || len(keys) != 2 || keys[1] != "Bearer k" {
		t.Errorf("violated are %q with the keys %q", kinds, keys)
	}
}
