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
				Contract: relay.Name, Queues: []string{queue}, Max: 9})
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
