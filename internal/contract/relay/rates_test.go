package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// AD-032: from a queue of Relay with a rate in the settings as many jobs as that are claimed in
// every period, in order, while it accepts all that are enqueued. Other queues are not concerned.
func TestRateOfAQueue(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		c := config()
		c.Queues = map[string]*relay.Queue{"mail. 1": {
			Rate: job.Rate{Starts: 2, Period: time.Minute}}}
		w := newWorldAt(t, p, c)
		c.Engine, c.Registry = w.engine, prometheus.NewRegistry()
		c.Log = slog.New(slog.DiscardHandler)
		r, err := relay.New(c)
		if err != nil {
			t.Fatal(err)
		}
		r.Run(t.Context())
		for i := range 5 {
			w.enqueue(t, "", jobBody("mail. 1", fmt.Sprint(i), `"timeout":3600`),
				jobBody("other", fmt.Sprint(i))).
				WantStatus(t, 202)
		}
		claimed := func(queue, want string) {
			t.Helper()
			jobs, err := w.engine.Claim(context.Background(), engine.ClaimRequest{
				JobType: relay.Name, Queues: []string{queue}, Max: 9})
			got := ""
			for _, j := range jobs {
				got += j.ID.Key
			}
			if err != nil || got != want {
				t.Errorf("claimed %s of %s, %v; want %s", got, queue, err, want)
			}
		}
		claimed("mail. 1", "01")
		claimed("mail. 1", "")
		claimed("other", "01234")
		w.clock.Advance(time.Minute)
		claimed("mail. 1", "23")
	})
}

// TestRateOfEndsWithNext: a completion that takes the next job starts no more than the rate allows.
func TestRateOfEndsWithNext(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorldAt(t, p, config())
		if err := w.engine.SetQueue(t.Context(), job.QueueSettings{JobType: relay.Name,
			Queue: "rated", Rate: job.Rate{Starts: 2, Period: time.Minute}}); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			w.put(t, jobBody("rated", fmt.Sprint(i), `"timeout":3600`))
		}
		first := w.claim(t, "rated")
		second := w.endAndTake(t, 3, first)
		assertEqual(t, "within the rate", ids(second), "1")
		assertEqual(t, "beyond the rate", ids(w.endAndTake(t, 3, second...)), "")
		w.wantGone(t, "rated", "1")
		assertEqual(t, "a poll beyond it", ids(w.next(t, "rated", 3)), "")
		w.clock.Advance(time.Minute)
		assertEqual(t, "of a lost run, later", ids(w.endAndTake(t, 3, first)), "2 3")
	})
}
