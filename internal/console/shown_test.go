package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/webhook"
)

// page returns the text of a page.
func page(t *testing.T, name string, content any) string {
	t.Helper()
	var text bytes.Buffer
	if err := New(nil).templates[name].Execute(&text, view{Name: name, Page: content,
		Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// CO-001: nothing of a page is inline that the policy of its answers does not permit, and what
// cannot be undone asks first.
func TestPagesAreStrict(t *testing.T) {
	t.Parallel()
	entries, err := pageFiles.ReadDir("pages")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := pageFiles.ReadFile("pages/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []string{` style="`, `<style`, `<script>`, ` onclick="`} {
			if strings.Contains(string(raw), wrong) {
				t.Errorf("%s has %s", e.Name(), wrong)
			}
		}
		for _, part := range strings.Split(string(raw), "{{")[1:] {
			call, _, _ := strings.Cut(part, "}}")
			if strings.HasPrefix(call, "act ") && strings.Contains(call, "danger") {
				t.Errorf("%s has a button that does not ask: %s", e.Name(), call)
			}
		}
	}
	asks := string(confirmButton(admin.Viewer{}, "/console/a?b=<", "Discard", "small"))
	before, form, _ := strings.Cut(asks, "<form ")
	if !strings.HasPrefix(before, `<details class="confirm"`) || !strings.Contains(before,
		"Discard…") ||
		!strings.Contains(form, `action="/console/a?b=&lt;"`) ||
		!strings.Contains(form, "Discard for good") {
		t.Errorf("a button that asks is %s", asks)
	}
	if got := confirmButton(admin.Viewer{ReadOnly: true}, "/", "Discard"); got != "" {
		t.Errorf("AD-005 who changes nothing gets %s", got)
	}
}

// CO-002: many queues that need attention for one reason are shown together, and few one by one,
// those with the most jobs first.
func TestManyQueuesNeedAttention(t *testing.T) {
	t.Parallel()
	var queues []admin.QueueItem
	for i := range 600 {
		queues = append(queues, admin.QueueItem{QueueStatus: engine.QueueStatus{
			QueueCount: job.QueueCount{JobType: "relay", Queue: fmt.Sprint("q", i),
				Ready: 1 + int64(i)/599}}})
	}
	all := queuesNeedingAttention(queues)
	if len(all) != 1 || all[0].Many != "600 queues" || all[0].Path != "/console/queues?order=age" ||
		all[0].Text != "with 601 ready jobs have no worker: relay/q599, relay/q0, relay/q1, …" {
		t.Errorf("of 600 queues is shown %q", all)
	}
	queues[0].Settings.Paused = true
	queues[1].Ready, queues[2].Leased, queues[3].Pollers.Asking = 0, 1, true
	all = queuesNeedingAttention(queues[:6])
	want := []string{"queue relay/q0 is paused with 1 ready job",
		"no worker polls queue relay/q4, which has 1 ready job",
		"no worker polls queue relay/q5, which has 1 ready job"}
	for i, text := range want {
		if len(all) != len(want) || all[i].Many != "" || all[i].Text != text {
			t.Fatalf("of few queues is shown %q, want %q", all, want)
		}
	}
}

// AD-021: pages of bulk operations say what each is about, without what the caller does not see.
func TestBulkSaysWhat(t *testing.T) {
	t.Parallel()
	all := []*bulk.Operation{
		{ID: "a", Request: bulk.Request{Action: "delete", Jobs: &bulk.JobFilter{
			JobTypes: []string{"taskflow"}, Queue: "<mail>", Phases: []job.Phase{job.Leased},
			Error: "secret"}}},
		{ID: "b", Request: bulk.Request{Action: "run-now", Jobs: &bulk.JobFilter{
			JobTypes: []string{"relay", "taskflow"}, Numbers: make([]int64, 12)}}},
		{ID: "c", Request: bulk.Request{Action: bulk.Replay, DeadLetters: &bulk.DeadLetterFilter{
			JobTypes: []string{"relay"}}}}}
	list := page(t, "bulk", struct {
		Operations []*bulk.Operation
		Next       string
	}{all, ""})
	for _, want := range []string{`queue</span> &lt;mail&gt;`, `phase</span> running`,
		`number</span> 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 and 2 more`, ">Run now</a>"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %s: %s", want, list)
		}
	}
	if strings.Contains(list, "secret") {
		t.Error("AD-005 a caller who does not see errors sees one that was searched")
	}
	one := page(t, "operation", all[0])
	for _, want := range []string{"<h1>Delete: taskflow/&lt;mail&gt;</h1>", "<dd>taskflow</dd>",
		`href="/console/audit?target=bulk:a"`, "Cancel for good"} {
		if !strings.Contains(one, want) {
			t.Errorf("the page has no %s: %s", want, one)
		}
	}
	for i, want := range []string{"Delete: taskflow/<mail>", "Run now: 12 marked jobs",
		"Replay: relay"} {
		if got := operationTitle(all[i]); got != want {
			t.Errorf("the title is %q, want %q", got, want)
		}
	}
}

// AD-022: the page that asks says how many of what, and where nothing matches it asks nothing.
func TestPreviewSaysWhat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		items int
		want  []string
	}{
		{2, []string{"<h1>Delete 2 jobs?</h1>", "<b>2 jobs</b> match: 1 ready, 1 running.",
			">Delete 2 jobs</button>", "gone for good"}},
		{1, []string{"<h1>Delete 1 job?</h1>", "<b>1 job</b> matches: 1 running."}},
		{0, []string{"<h1>Nothing to delete</h1>", `class="empty"`}},
	} {
		p := previewPage{Request: bulk.Request{Action: "delete", Jobs: &bulk.JobFilter{}},
			IsDanger: true, IsDelete: true, Sampled: c.items}
		p.Matching = c.items
		for _, phase := range []string{"leased", "ready"}[:c.items] {
			p.Items = append(p.Items, admin.JobItem{Phase: phase})
		}
		p.count()
		text := page(t, "preview", p)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("of %d jobs there is no %s: %s", c.items, want, text)
			}
		}
		if asks := strings.Contains(text, "<form method=\"post\" action=\"\""); asks != (c.items > 0) {
			t.Errorf("of %d jobs there is a form: %t", c.items, asks)
		}
	}
}

// WH-001: a webhook whose deliveries fail is not shown as one that works.
func TestFailingWebhook(t *testing.T) {
	t.Parallel()
	hook := admin.Webhook{Subscription: webhook.Subscription{ID: "a",
		FailingSince: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)}}
	for name, content := range map[string]any{
		"webhooks": struct {
			State, Client string
			Webhooks      []admin.Webhook
			Next          string
		}{Webhooks: []admin.Webhook{hook}},
		"webhook": &webhookPage{Webhook: hook},
	} {
		text := page(t, name, content)
		if !strings.Contains(text, string(stateBadge("failing"))) ||
			strings.Contains(text, string(stateBadge("enabled"))) || !strings.Contains(text,
			"1 h ago") {
			t.Errorf("%s shows %s", name, text)
		}
	}
}

// A form shows hidden characters of JSON as escapes, which mean the same.
func TestHiddenCharactersInForms(t *testing.T) {
	t.Parallel()
	raw := "{\"a\u202eb\":\"\u200b\u0085\U000E0041é\"}"
	form := formOf(&schedule.Schedule{Definition: schedule.Definition{Request: []byte(raw)}})
	if got, want := form.Get("request"),
		"{\n  \"a\\u202eb\": \"\\u200b\\u0085\\udb40\\udc41é\"\n}"; got != want {
		t.Errorf("the form has %q, want %q", got, want)
	}
	var before, after map[string]string
	if err := json.Unmarshal([]byte(raw), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(form.Get("request")), &after); err != nil ||
		fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("%q becomes %q: %v", before, after, err)
	}
}

// CO-006: the legend of a chart says the sum of what counts and the most of what is measured, of
// all its time; a step that has not ended is drawn by its time until now.
func TestChartSums(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := &series.Series{From: from, To: from.Add(90 * time.Minute), Step: time.Hour,
		Points: []series.Point{{At: from}, {At: from.Add(time.Hour), Partial: true}}}
	s.Points[0].Failed, s.Points[1].Failed = 120, 60
	s.Points[0].Depth, s.Points[1].Depth = 600, 3
	failed := line{"c", "failed", "failed"}
	if got := failed.valuesOf(s); got[0] != 2 || got[1] != 2 {
		t.Errorf("failures a minute are %v, want 2 and 2", got)
	}
	for i, want := range map[int]string{1: "<b>180</b> in 1 h 30 min", 4: "<b>600</b>"} {
		made := plots[i].draw(s)
		key := made.Legend[0]
		if got := strings.TrimSpace("<b>" + key.Value + "</b> " + key.Note); got != want {
			t.Errorf("the legend of %s is %s, want %s", made.Title, got, want)
		}
		if n := strings.Count(string(made.SVG), "<title>"); n != len(s.Points) {
			t.Errorf("%s has %d steps", made.Title, n)
		}
	}
	s.To = from.Add(60*time.Minute + 30*time.Second)
	if got := failed.valuesOf(s); !math.IsNaN(got[1]) {
		t.Errorf("a step that has just begun is drawn as %v", got)
	}
	if every, layout := ticksOf(&series.Series{From: from,
		To: from.Add(24*time.Hour + time.Minute)}); every != 6*time.Hour || layout != "15:04" {
		t.Errorf("a day has labels every %v as %s", every, layout)
	}
}

// CO-006: the table of a chart has every step: a row of an hour is one of several steps, with the
// rate of all of them and the most of what is measured.
func TestChartTable(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := &series.Series{From: from, To: from.Add(time.Hour), Step: 10 * time.Second,
		Points: make([]series.Point, 360)}
	for i := range s.Points {
		s.Points[i].At = from.Add(time.Duration(i) * s.Step)
	}
	s.Points[1].Succeeded, s.Points[2].Depth = 3, 7 // neither begins a minute
	s.Points[359].Partial = true
	jobs, ready := plots[0].draw(s).Rows, plots[4].draw(s).Rows
	if len(jobs) != 60 || jobs[59].Values[0] != "3" || jobs[58].Values[0] != "0" ||
		ready[59].Values[0] != "7" || !jobs[59].At.Equal(from) {
		t.Errorf("the rows are %v and %v", jobs, ready)
	}
}

// CO-003: a list without jobs says what it does not show, whether or not there were any.
func TestNoJobs(t *testing.T) {
	t.Parallel()
	text := page(t, "jobs", jobsPage{Dead: 2})
	for _, want := range []string{"No job is stored. A job of Relay is not kept once it is completed",
		`<a href="/console/jobs?phase=dead">Given up: 2</a>`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in %s", want, text)
		}
	}
	if text := page(t, "jobs", jobsPage{}); strings.Contains(text, "Given up") {
		t.Errorf("jobs were given up: %s", text)
	}
}

// A queue that is not there has nothing that needs attention.
func TestUnknownQueue(t *testing.T) {
	t.Parallel()
	text := page(t, "queue", queuePage{queueRow: queueRow{QueueItem: admin.QueueItem{
		QueueStatus: engine.QueueStatus{QueueCount: job.QueueCount{JobType: "relay",
			Queue: "none"}}}}})
	if strings.Contains(text, "attention") || strings.Contains(text, "Clear…") ||
		!strings.Contains(text, "no such queue yet") {
		t.Errorf("the page is %s", text)
	}
}

// CO-004: a job that has not started shows what it passes until then: what is open, what is closed
// with the pages about that, and what is not known yet.
func TestGates(t *testing.T) {
	t.Parallel()
	d := &admin.JobDetail{JobItem: admin.JobItem{Contract: "relay", Queue: "q", Number: 7},
		Job: &job.Job{State: "ready", Phase: job.Ready, ID: job.ID{JobType: "relay"}, Queue: "q"}}
	of := func(codes ...job.ReasonCode) (all []string) {
		var why job.Why
		for _, code := range codes {
			why.Reasons = append(why.Reasons, job.Reason{Code: code, Text: string(code),
				Facts: []job.Fact{{Name: "dependencies", Value: []job.Relative{{Number: 3}}}}})
		}
		for _, g := range startConditionsOf(d, why) {
			class, _, _ := strings.Cut(strings.TrimPrefix(string(g.Badge), `<span class="state `),
				`"`)
			for _, l := range g.Links {
				class += " " + l.Path
			}
			all = append(all, class+g.Resume)
		}
		return all
	}
	for _, c := range []struct {
		codes []job.ReasonCode
		want  []string
	}{
		{nil, []string{"good", "good", "good", "good", "good", "good"}},
		{[]job.ReasonCode{job.ReasonQueuePaused, job.ReasonQueueLimit, job.ReasonNoWorkers},
			[]string{"good", "good", "bad/console/queues/relay/q/resume",
				"leased /console/jobs?contract=relay&phase=leased&queue=q", "good",
				"bad /console/workers"}},
		{[]job.ReasonCode{job.ReasonWaitsForDependencies},
			[]string{"good", "leased /console/jobs/3", "good", "waiting", "waiting", "good"}},
	} {
		if got := of(c.codes...); !slices.Equal(got, c.want) {
			t.Errorf("with %v the conditions are %q, want %q", c.codes, got, c.want)
		}
	}
	d.Job.Phase = job.Leased
	if got := of(job.ReasonRunning); got != nil {
		t.Errorf("a job that runs has the conditions %q", got)
	}
}

// A failure that says no more than its text is not shown twice, and long bodies are folded.
func TestBodies(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		`{"type":"a","error":"b"}`: "Payload folded", "plain": "Payload folded",
		`{"error":"b","status":404}`: "Failure open, Payload folded",
	} {
		var got []string
		for _, b := range bodiesOf(&job.Job{Failure: []byte(failure),
			Payload: []byte(`"` + strings.Repeat("x", maxOpenSize) + `"`)}) {
			got = append(got, b.Name+map[bool]string{true: " open", false: " folded"}[b.IsOpen])
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("with the failure %s the bodies are %q, want %s", failure, got, want)
		}
	}
}
