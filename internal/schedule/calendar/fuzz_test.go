package calendar_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/schedule/calendar"
)

// FuzzCron: an expression is refused, or its times come one after another, none at or before the
// moment that it was asked for, and soon enough for a request.
func FuzzCron(f *testing.F) {
	for _, text := range []string{"* * * * *", "*/20 0 * * * *", "0 9 * * MON-FRI", "@hourly",
		"@every 1s", "TZ=UTC * * * * *", "0 0 30 2 *", "0 0 29 2 *", "0 0 L * *", "0-59/0 * * * *",
		"99999999999 * * * *", "*/-1 * * * *", "? ? ? ? ?", "1,2,,3 * * * *", "\x00", "@", "# * * * *"} {
		f.Add(text, "UTC", int64(0))
		f.Add(text, "Europe/Berlin", int64(1<<33))
	}
	f.Add("0 2 * * *", "../../etc/passwd", int64(1))
	f.Fuzz(func(t *testing.T, text, zone string, unix int64) {
		c, err := calendar.Parse(calendar.Rule{Cron: text, Zone: zone})
		if err != nil {
			return
		}
		after := time.Unix(unix%(1<<34), 0).UTC()
		started := time.Now()
		for range 5 {
			next, ok := c.Next(after)
			if !ok {
				break
			}
			if !next.After(after) {
				t.Fatalf("%q in %q: %s comes after %s", text, zone, next, after)
			}
			after = next
		}
		c.Shortest()
		c.Last(after.Add(-time.Hour), after, 10)
		if took := time.Since(started); took > 5*time.Second {
			t.Fatalf("%q in %q took %s", text, zone, took)
		}
	})
}
