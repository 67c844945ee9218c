package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/admin"
)

// AD-006: the audit says of an entry what was changed from what to what, and of a bulk operation
// how many jobs it was about.
func TestChangesOfAudit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, before, after string
		sum                   string
		want                  string
	}{
		{"queue.set", `{"paused":false,"run_limit":0,"rate":5}`,
			`{"paused":true,"run_limit":3,"rate":5}`, "",
			"[{paused false true} {run limit 0 3}]"},
		{"schedule.create", "", `{"cron":"0 3 * * *","paused":false,"owner":null}`, "",
			"[{cron  0 3 * * *}]"},
		{"dead_letter.discard", `{"state":"DEAD","number":0}`, "", "", "[{state DEAD }]"},
		{"bulk.end", "", `{"action":"delete","jobs":{"queue":"mail","states":["A","B"]},
			"state":"done","done":1200,"failed":0,"skipped":3}`,
			"1\u202f200 jobs done, 0 failed, 3 skipped",
			`[{action  delete} {jobs.queue  mail} {jobs.states  "A","B"} {state  done}]`},
		{"queue.reset", `{"rate":12345678901234567890}`, `{"rate":12345678901234567891}`, "",
			"[{rate 12345678901234567890 12345678901234567891}]"},
		{"session.create", "", "", "", "[]"},
		{"job.retry", `"x"`, `[1]`, "", "[]"},
	} {
		sum, got := changesOf(&admin.Entry{Action: c.action, Before: json.RawMessage(c.before),
			After: json.RawMessage(c.after)})
		if fmt.Sprint(got) != c.want || sum != c.sum {
			t.Errorf("%s: %q, %v, want %q, %s", c.action, sum, got, c.sum, c.want)
		}
	}
}

// What an entry names is linked to its page, whatever its name is.
func TestObjectsOfAudit(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"job:12": "/console/jobs/12",
		"queue:relay/a/b": "/console/queues/relay/a%2Fb", "queue:relay": "", "queue:/": "",
		"schedule:..": "/console/schedules/~..", "bulk:x": "/console/bulk/x", "bulk": "",
		"webhook:a": "/console/webhooks/a", "client:a": "/console/clients/a",
		"node:n": "/console/workers", "worker:w": "/console/workers", "inbox:1": "/console/inbox",
		"dead_letter:1": "/console/dead-letters/list", "session": "", "job:": "",
		"token:operator": "", "javascript:alert(1)": ""} {
		if got := objectPath(target); got != want {
			t.Errorf("%q leads to %q, want %q", target, got, want)
		}
	}
}

// Links that filter keep the other filters and begin with the first page.
func TestFiltersOfAudit(t *testing.T) {
	t.Parallel()
	got := auditEntryOf(&admin.Entry{Actor: "operator:alice", Action: "queue.set", Target: "a&b"},
		url.Values{"from": {"2026-03-01T12:00:00Z"}, "cursor": {"x"}})
	const from = "&from=2026-03-01T12%3A00%3A00Z"
	for address, want := range map[string]string{got.ByActor: "/console/audit?actor=alice" + from,
		got.ByAction: "/console/audit?action=queue.set" + from,
		got.ByTarget: "/console/audit?from=2026-03-01T12%3A00%3A00Z&target=a%26b"} {
		if address != want {
			t.Errorf("the address is %s, want %s", address, want)
		}
	}
	wrong := fieldErrors("from must be a time", auditFilters)
	if want := map[string]string{"from": "from must be a time"}; !reflect.DeepEqual(wrong, want) {
		t.Errorf("what is wrong is %v", wrong)
	}
	if wrong := fieldErrors("fromage is unknown", auditFilters); wrong != nil {
		t.Errorf("what is wrong is %v", wrong)
	}
}

// The page of the settings has those that were set first and all of them by part; small parts are
// the node's, and a search shows what it finds.
func TestSettingsByPart(t *testing.T) {
	t.Parallel()
	all := []admin.Setting{{Key: "listen", Value: ":80", Origin: "flag --set listen",
		Default: "127.0.0.1:8080"}, {Key: "log.level", Value: "info", Origin: "default"}}
	for i := range minPart {
		all = append(all, admin.Setting{Key: fmt.Sprint("relay.a", i), Origin: "default",
			Meaning: "Lease <b>."})
	}
	p := settingsOf(all, "")
	if len(p.Changed) != 1 || len(p.Parts) != 2 || p.Parts[0].Name != "" || p.Parts[0].Changed != 1 ||
		len(p.Parts[0].Settings) != 2 || p.Parts[1].Name != "relay" {
		t.Errorf("the page is %+v", p)
	}
	text := page(t, "settings", p)
	for _, want := range []string{"1 of 7", "<h3>relay</h3>", "<h3>Node</h3>",
		`<span class="mono">127.0.0.1:8080</span>`, "Lease &lt;b&gt;."} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in %s", want, text)
		}
	}
	if p = settingsOf(all, "LEASE"); p.Found != minPart || len(p.Parts) != 1 {
		t.Errorf("a search finds %+v", p)
	}
	if text = page(t, "settings", p); strings.Contains(text, "<details") {
		t.Errorf("what was searched for is folded: %s", text)
	}
	if text = page(t, "settings", settingsOf(all[1:], "")); !strings.Contains(text,
		"Every setting has its default") {
		t.Errorf("without changes the page is %s", text)
	}
}
