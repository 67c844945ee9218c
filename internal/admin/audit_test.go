package admin_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/testkit"
)

// TestAudit: AD-006, filters and pages.
func TestAudit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for i := range 5 {
			w.do(t, w.api.Token(), "POST", "/admin/v1/login-codes", "", "Millrace-Actor",
				fmt.Sprint("n", i), "X-Request-Id", fmt.Sprint("request-", i)).WantStatus(t, 201)
			w.clock.Advance(time.Minute)
		}
		w.do(t, w.api.Token(), "POST", "/admin/v1/token/rotate", "").WantStatus(t, 200)
		at := func(minutes int) string {
			return url.QueryEscape(testkit.StartTime.Add(time.Duration(minutes) *
				time.Minute).Format(time.RFC3339))
		}
		for query, want := range map[string]string{
			"":                                     "R43210",
			"?action=token.rotate":                 "R",
			"?action=login.create":                 "43210",
			"?target=token:operator":               "R",
			"?target=login&action=login.create":    "43210",
			"?target=login&action=token.rotate":    "",
			"?target=logi":                         "",
			"?actor=operator:n3":                   "3",
			"?actor=n3&action=login.create":        "3",
			"?actor=n":                             "",
			"?from=" + at(3):                       "R43",
			"?to=" + at(3):                         "210",
			"?from=" + at(1) + "&to=" + at(3):      "21",
			"?from=" + at(3) + "&to=" + at(3):      "",
			"?target=login&from=" + at(4):          "4",
			"?action=login.create&to=" + at(1):     "0",
			"?action=login.create&from=" + at(400): "",
		} {
			if got := names(w.audit(t, query).Items); got != want {
				t.Errorf("AD-006 %q: got %q, want %q", query, got, want)
			}
		}
		got, cursor := "", ""
		for {
			page := w.audit(t, "?limit=2&action=login.create"+cursor)
			got += names(page.Items) + ","
			if page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *page.NextCursor
		}
		if got != "43,21,0," {
			t.Errorf("G-AD-01 the pages are %q", got)
		}
		e := w.audit(t, "?limit=2").Items[1]
		if e.Actor != "operator:n4" || e.RequestID != "request-4" || e.Target != "login" ||
			!e.At.Equal(testkit.StartTime.Add(4*time.Minute)) {
			t.Errorf("got %+v", e)
		}
		w.clock.Advance(90*24*time.Hour - time.Minute) // audit_retention
		if got := names(w.audit(t, "").Items); got != "R" {
			t.Errorf("AD-006 %q is left", got)
		}
		if n, err := w.engine.Prune(context.Background()); err != nil || n < 15 {
			t.Errorf("AD-006 %d records were pruned, %v", n, err)
		}
	})
}

// names shortens entries: the number of their actor, R for a rotation.
func names(all []entry) (short string) {
	for _, e := range all {
		if e.Action == "token.rotate" {
			short += "R"
			continue
		}
		short += e.Actor[len("operator:n"):]
	}
	return short
}

// TestSettings: AD-062, with pages.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	type page struct {
		Items []struct{ Key, Value, Origin, Meaning string }
		Next  *string `json:"next_cursor"`
	}
	first := get[page](t, w, "/admin/v1/settings?limit=1")
	if len(first.Items) != 1 || first.Items[0].Key != "a" || first.Next == nil {
		t.Fatalf("AD-062 got %+v", first)
	}
	second := get[page](t, w, "/admin/v1/settings?cursor="+*first.Next)
	if len(second.Items) != 1 || second.Next != nil || second.Items[0].Value != "***" ||
		second.Items[0].Origin != "flag --set b.token" || second.Items[0].Meaning != "A secret." {
		t.Errorf("AD-062 got %+v", second)
	}
}

// TestHealth: AD-062, each part with its state and since when. CO-002: the overview shows those
// that fail as they were at the last look, and looks at none itself.
func TestHealth(t *testing.T) {
	t.Parallel()
	var broken error
	looks := 0
	var cdn *outage.Monitor
	w := inMemory(t, func(c *admin.Config) {
		newMonitor := func(name, address string) *outage.Monitor {
			p := outage.NewMonitor(c.Log, c.Elapsed, outage.Endpoint{Name: name, Address: address})
			c.Monitors = append(c.Monitors, p)
			return p
		}
		newMonitor("store", "here") // which a check looks at
		newMonitor("traces", "")    // which is not used
		cdn = newMonitor("cdn", "there")
		c.Checks = append(c.Checks, httpapi.Check{Name: "objects", Optional: true,
			Run: func(context.Context) error { looks++; return broken }})
	})
	type part struct {
		Name, State string
		Optional    bool
		Latency     float64
		Since       time.Time
		LastError   *string    `json:"last_error"`
		LastErrorAt *time.Time `json:"last_error_at"`
	}
	type health struct {
		OK    bool
		Parts []part
	}
	var called part
	check := func() part {
		t.Helper()
		h := get[health](t, w, "/admin/v1/health")
		if !h.OK || len(h.Parts) != 3 || h.Parts[0].Name != "store" || h.Parts[0].State != "ok" {
			t.Fatalf("AD-062 got %+v", h)
		}
		called = h.Parts[2]
		return h.Parts[1]
	}
	if p := check(); p.State != "ok" || !p.Since.Equal(testkit.StartTime) || p.LastError != nil {
		t.Errorf("AD-062 got %+v", p)
	}
	w.clock.Advance(time.Minute)
	broken = &job.Error{Kind: job.Unavailable, Msg: "the bucket is gone"}
	check()
	w.clock.Advance(time.Minute)
	if p := check(); p.State != "failing" || !p.Since.Equal(testkit.StartTime.Add(time.Minute)) ||
		*p.LastError != "the bucket is gone" || !p.Optional {
		t.Errorf("AD-062 got %+v", p)
	}
	page := w.do(t, w.api.Token(), "GET", "/console", "").WantStatus(t, 200).Body
	if !strings.Contains(page, "objects fails: the bucket is gone") || looks != 3 {
		t.Errorf("CO-002 after %d looks the overview is %s", looks, page)
	}
	broken = nil
	if p := check(); p.State != "ok" || !p.Since.Equal(testkit.StartTime.Add(2*time.Minute)) ||
		p.LastErrorAt == nil || !p.LastErrorAt.Equal(testkit.StartTime.Add(2*time.Minute)) {
		t.Errorf("AD-062 got %+v", p)
	}
	if called.Name != "cdn" || called.State != "ok" || !called.Since.Equal(testkit.StartTime) {
		t.Errorf("AD-062 got %+v", called)
	}
	report := cdn.Begin()
	w.clock.Advance(time.Second)
	report(&job.Error{Kind: job.Unavailable, Msg: "it hangs up"})
	check()
	if called.State != "failing" || called.Latency != 1 || *called.LastError != "it hangs up" ||
		!called.Since.Equal(testkit.StartTime.Add(2*time.Minute+time.Second)) {
		t.Errorf("AD-062 got %+v", called)
	}
}
