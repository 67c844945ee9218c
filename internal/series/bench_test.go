package series

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// BenchmarkRead reads two hours of one queue of a job type with 10,000 queues, and of the job type.
// Of each step the store has the counts of as many queues as a record names, and of the others
// together.
func BenchmarkRead(b *testing.B) {
	p := testkit.InMemory(b)
	e := testkit.NewEngine(b, p.Store, p.Clock)
	r, err := New(Config{Engine: e})
	if err != nil {
		b.Fatal(err)
	}
	now := p.Clock.Now()
	var records []job.Record
	for at := now.Add(-2 * time.Hour); at.Before(now); at = at.Add(interval) {
		t := newStepCounts(at)
		for i := range 10_000 {
			t.add("a", fmt.Sprint("queue ", i), &Bucket{Activity: engine.Activity{Submitted: 5,
				Started: 5, Succeeded: 5}, Depth: 3})
		}
		records = append(records,
			job.Record{Kind: layers[0].kind, Key: keyOf(at) + "x", Body: t.totals.encode()},
			job.Record{Kind: layers[0].kind, Key: keyOf(at) + "a", Owner: "a",
				Body: t.queues["a"].encode()})
	}
	if err := e.ChangeRecords(b.Context(), "x", func(w engine.RecordWriter) error {
		return w.UpsertRecords(records...)
	}); err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]Query{"queue": {JobType: "a", Queue: "queue 7"},
		"contract": {JobType: "a"}} {
		q.From, q.Step = now.Add(-2*time.Hour), interval
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				s, err := r.Read(b.Context(), q)
				if err != nil || len(s.Points) < 700 || s.Points[9].Submitted == 0 {
					b.Fatalf("%d points: %v", len(s.Points), err)
				}
			}
		})
	}
}

// BenchmarkTrends reads the last hour of the queues of a page, of a job type whose records have as
// many queues as they may, on two nodes.
func BenchmarkTrends(b *testing.B) {
	p := testkit.InMemory(b)
	r, err := New(Config{Engine: testkit.NewEngine(b, p.Store, p.Clock)})
	if err != nil {
		b.Fatal(err)
	}
	now := p.Clock.Now()
	var records []job.Record
	for minute := range 2 * TrendMinutes {
		t := newStepCounts(now.Add(-time.Duration(minute/2) * time.Minute).Truncate(time.Minute))
		for i := range maxNames {
			t.add("a", fmt.Sprint("queue ", i), &Bucket{Activity: engine.Activity{Submitted: 5,
				Started: 5, Succeeded: 5}, Depth: 3})
		}
		records = append(records, job.Record{Kind: minuteLayer.kind, Owner: "a",
			Key: keyOf(t.at) + fmt.Sprint(minute%2), Body: t.queues["a"].encode()})
	}
	if err := r.Engine.ChangeRecords(b.Context(), "x", func(w engine.RecordWriter) error {
		return w.UpsertRecords(records...)
	}); err != nil {
		b.Fatal(err)
	}
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("queue ", i))
	}
	b.ReportAllocs()
	for range b.N {
		trends, err := r.Trends(b.Context(), map[string][]string{"a": names})
		if err != nil || trends.Of("a", "queue 7")[9].Succeeded != 10 {
			b.Fatalf("%v: %v", trends.Of("a", "queue 7"), err)
		}
	}
}
