package webhook_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/webhook"
)

// BenchmarkDelivery is four events each of many jobs to one receiver that answers at once, told of in portions.
func BenchmarkDelivery(b *testing.B) {
	for _, place := range []string{"file", "postgres"} {
		b.Run(place, func(b *testing.B) {
			n := newWorld(b, place, true, func(c *webhook.Config) { c.Slots = 64 }).node()
			r := receive(b, nil)
			n.register(r.URL, "a")
			n.run()
			var all []webhook.Notification
			for i := range b.N {
				all = append(all, n.event(fmt.Sprint("j", i/4), i%4, "a", ""))
				if len(all) == 100 || i == b.N-1 {
					n.notify(chained(all...)...)
					all = nil
				}
			}
			n.awaitDone(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
