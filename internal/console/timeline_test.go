package console

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
)

// The timeline of a job is to scale: of 100 seconds it waited 20, ran 10, waited 30 and runs since.
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
	d.Attempts = 3
	for _, kept := range [][]job.Entry{entries, nil} {
		unknown := timelineOf(d, kept, at(100))
		if !strings.Contains(string(unknown.SVG), `x="0.000%"`) {
			continue
		}
		t.Errorf("what is not known before the first attempt is drawn as a wait: %s", unknown.SVG)
	}
	d.Attempts, d.SettledAt = 2, at(60)
	later := job.Entry{At: at(100), Kind: job.EntryOperator}
	over := timelineOf(d, append(entries[:2:2], later), at(500))
	if !strings.Contains(string(over.SVG), ` x="30.000%" y="20" width="30.000%"`) {
		t.Errorf("a job that is over waits on: %s", over.SVG)
	}
	if empty := timelineOf(&admin.JobDetail{Job: &job.Job{}}, nil, start); strings.Contains(
		string(empty.SVG), "NaN") {
		t.Errorf("nothing is drawn as %s", empty.SVG)
	}
}
