package webhook_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/webhook"
)

// BenchmarkDelivery is four events each of many jobs to one receiver that answers at once, passed
// in batches.
func BenchmarkDelivery(b *testing.B) {
	for _, database := range []string{"file", "postgres"} {
		b.Run(database, func(b *testing.B) {
			n := newWorld(b, database, true, func(c *webhook.Config) { c.Slots = 64 }).node()
			r := newReceiver(b, nil)
			n.register(r.URL, "a")
			n.run()
			var all []webhook.Event
			for i := range b.N {
				all = append(all, n.event(fmt.Sprint("j", i/4), i%4, "a", ""))
				if len(all) == 100 || i == b.N-1 {
					n.deliver(setEarlier(all...)...)
					all = nil
				}
			}
			n.awaitDone(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
