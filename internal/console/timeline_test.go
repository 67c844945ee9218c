package console

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// CO-004: the timeline of a job is to scale: of 100 seconds it waited 20, ran 10, waited 30 and
// runs since.
func TestTimeline(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	d := &admin.JobDetail{JobItem: admin.JobItem{CreatedAt: start}, Job: &job.Job{State: "RUNNING"}}
	entries := []job.Entry{{At: start, Kind: job.EntrySubmitted},
		{At: at(20), Until: at(30), Kind: job.EntryAttempt, Outcome: "failed"},
		{At: at(50), Kind: job.EntryOperator},
		{At: at(60), Kind: job.EntryAttempt, Outcome: job.OutcomeRunning},
		{At: at(60), Kind: job.EntryChild, Number: 7}}
	made := timelineOf(d, entries, at(100))
	for _, want := range []string{
		`class="wait" fill="url(#hatch)" x="0.000%" y="20" width="20.000%"`,
		`<g class="bad"><rect class="attempt" x="20.000%" y="18" width="10.000%"`,
		`class="wait" fill="url(#hatch)" x="30.000%" y="20" width="30.000%"`,
		`<g class="leased"><rect class="attempt" x="60.000%" y="18" width="40.000%"`,
		`cx="50.000%"`, cross, triangle, ">12:01:40 UTC<",
		`aria-label="Timeline over 1 min 40 s: waited 50 s, attempts: 2, 1 failed, 1 running"`,
	} {
		if !strings.Contains(string(made.SVG), want) {
			t.Errorf("there is no %s in %s", want, made.SVG)
		}
	}
	if n := strings.Count(string(made.SVG), `class="wait"`); n != 2 {
		t.Errorf("there are %d waits, want 2", n)
	}
	if len(made.Relatives) != 1 || made.Relatives[0].Number != 7 {
		t.Errorf("the relatives are %v", made.Relatives)
	}
	if made.ManyDependencies+made.ManyChildren != 0 {
		t.Errorf("there are %d dependencies and %d children that are not shown", made.ManyDependencies,
			made.ManyChildren)
	}
	d.Attempts = 3
	for _, kept := range [][]job.Entry{entries, nil} {
		unknown := timelineOf(d, kept, at(100))
		if !strings.Contains(string(unknown.SVG), `x="0.000%"`) {
			continue
		}
		t.Errorf("what is not known before the first attempt is drawn as a wait: %s", unknown.SVG)
	}
	d.Attempts, d.FinishedAt = 2, at(60)
	later := job.Entry{At: at(100), Kind: job.EntryOperator}
	done := timelineOf(d, append(entries[:2:2], later), at(500))
	if !strings.Contains(string(done.SVG), ` x="30.000%" y="20" width="30.000%"`) {
		t.Errorf("a job that is done waits on: %s", done.SVG)
	}
	if empty := timelineOf(&admin.JobDetail{Job: &job.Job{}}, nil, start); strings.Contains(
		string(empty.SVG), "NaN") {
		t.Errorf("nothing is drawn as %s", empty.SVG)
	}
}

// CO-004: of many relatives the page of a job lists the first of each kind, and says how many there
// are and where the others are.
func TestManyRelatives(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &admin.JobDetail{JobItem: admin.JobItem{Number: 9, CreatedAt: start, Children: 300},
		Job: &job.Job{State: "BLOCKED"}}
	var entries []job.Entry
	for i := range 120 {
		entries = append(entries,
			job.Entry{At: start, Kind: job.EntryDependency, Number: int64(1000 + i)},
			job.Entry{At: start, Kind: job.EntryChild, Number: int64(2000 + i)})
	}
	made := timelineOf(d, entries, start)
	made.Truncated = true
	var text bytes.Buffer
	if err := New(nil).templates["job"].Execute(&text, view{Name: "job", Now: start,
		Page: jobPage{JobDetail: d, Timeline: made, HasGraph: true}}); err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(text.String(), "<h2>Dependencies and children</h2>")
	for _, first := range []string{"/1000", "/1049", "/2000", "/2049"} {
		if !strings.Contains(list, `href="/console/jobs`+first+`"`) {
			t.Errorf("there is no link to the job %s", first)
		}
	}
	if n := strings.Count(list, "<tr data-row>"); n != 2*maxRelatives {
		t.Errorf("%d relatives are listed, want %d", n, 2*maxRelatives)
	}
	for _, want := range []string{"first of 120 or more dependencies",
		`<a href="/console/jobs/9/graph">`, "first of 300 children",
		`<a href="/console/jobs?parent=9">`} {
		if !strings.Contains(list, want) {
			t.Errorf("the page does not say %s: %s", want, list)
		}
	}
}

// CO-008: a timeline that is as long as it can be, with errors as long as they can be, makes a page
// of a size that people can load: texts are cut there, and the page says where they are whole. A
// few long errors are whole.
func TestLongTimeline(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	page := func(n int) string {
		entries := make([]job.Entry, n)
		for i := range entries {
			at := start.Add(time.Duration(i) * time.Second)
			entries[i] = job.Entry{At: at, Until: at.Add(time.Second), Kind: job.EntryAttempt,
				Outcome: "failed", Text: "attempt " + number(i), Error: "no such user <b>" +
					strings.Repeat("\u202e<", 4<<10) + " end of it"}
		}
		d := &admin.JobDetail{JobItem: admin.JobItem{Number: 9, CreatedAt: start, Attempts: n},
			Job: &job.Job{State: "FAILED"}}
		made := timelineOf(d, entries, start.Add(time.Hour))
		if n > 100 && len(entries[n-1].Error) < 16<<10 {
			t.Error("the entries themselves were cut")
		}
		var text bytes.Buffer
		if err := New(nil).templates["job"].Execute(&text, view{Name: "job", Now: start,
			Page: jobPage{JobDetail: d, Timeline: made}}); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	const whole = `<a href="/admin/v1/jobs/9/timeline" download>`
	long := page(job.MaxEntries)
	if n := strings.Count(long, "<tr data-row>"); n != job.MaxEntries {
		t.Errorf("the page has %d entries", n)
	}
	if len(long) > 8<<20 || !strings.Contains(long, whole) || strings.Contains(long, "end of it") {
		t.Errorf("the page has %d bytes, and says where all of it is: %t", len(long),
			strings.Contains(long, whole))
	}
	few := page(3)
	if strings.Contains(few, whole) || strings.Count(few, "end of it") != 3 {
		t.Error("three long errors are cut")
	}
}

// An attempt that took long is told in the units of people.
func TestTook(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	status := 200
	err := New(nil).templates["webhook"].ExecuteTemplate(&text, "attempt",
		webhook.Attempt{StatusCode: &status, DurationMS: 30_000})
	if got := text.String(); err != nil || !strings.Contains(got, ">30 s<") {
		t.Errorf("the attempt is shown as %s: %v", got, err)
	}
}
