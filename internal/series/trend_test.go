package series_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/testkit"
)

// TestTrends: AD-060: the trend of a queue has each of the last sixty minutes, with what all nodes
// have counted, written or not, and nothing of the time before or of other queues.
func TestTrends(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		a, b := newNode(t, p, "a", "b"), newNode(t, p, "a", "b")
		b.next = 1000
		p.Clock.Advance(time.Minute - p.Clock.Now().Sub(p.Clock.Now().Truncate(time.Minute)))
		a.submit("a", "mail", 1)
		a.run("a", "mail", 1, time.Second, job.Succeeded) // an hour and a minute before the end
		a.clock.Advance(10 * time.Second)
		a.write()
		a.clock.Advance(50 * time.Minute)
		a.submit("a", "mail", 5)
		b.submit("b", "mail", 7)
		a.run("a", "mail", 2, time.Second, job.Succeeded)
		b.run("a", "mail", 1, time.Second, job.Failed)
		a.clock.Advance(9 * time.Second)
		a.write()
		b.write()
		a.clock.Advance(10 * time.Minute)
		a.run("a", "mail", 1, time.Second, job.Succeeded) // is not written
		trends, err := a.recorder.Trends(t.Context(), map[string][]string{"a": {"mail", "none"}})
		if err != nil {
			t.Fatal(err)
		}
		mail := trends.Of("a", "mail")
		busy := series.TrendMinutes - 11
		for i, got := range mail {
			want := series.Minute{}
			switch i {
			case busy:
				want = series.Minute{Depth: 2, Succeeded: 2, Failed: 1}
			case series.TrendMinutes - 1:
				want = series.Minute{Succeeded: 1}
			}
			if got != want {
				t.Errorf("minute %d is %+v, want %+v", i, got, want)
			}
		}
		if got := trends.Of("a", "none"); got == nil || *got != (series.Trend{}) {
			t.Errorf("a queue without jobs has %+v", got)
		}
		if got := trends.Of("b", "mail"); got != nil {
			t.Errorf("a queue that was not asked for has %+v", got)
		}
	})
}

// A minute in which a queue may be among those beyond the bound is unknown, and no zero.
func TestTrendsBeyondTheBound(t *testing.T) {
	t.Parallel()
	n := newNode(t, testkit.InMemory(t), "a")
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprint("queue", i))
		n.submit("a", names[i], 1)
	}
	for _, when := range []string{"before it is written", "then"} {
		trends, err := n.recorder.Trends(t.Context(), map[string][]string{"a": names})
		if err != nil {
			t.Fatal(err)
		}
		unknown := 0
		for _, name := range names {
			for _, minute := range trends.Of("a", name) {
				if minute.Unknown {
					unknown++
				}
			}
		}
		if unknown != 50 {
			t.Errorf("%s: %d queues are unknown, want 50", when, unknown)
		}
		n.clock.Advance(5 * time.Second)
		n.write()
	}
}
