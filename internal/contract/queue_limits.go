package contract

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/setting"
)

// storeLimitsInterval is the pause between two tries to store limits during an outage of the store.
const storeLimitsInterval = time.Second

// StoreQueueLimits stores the limits that the settings have for queues of a job type, and removes
// those that are no longer set. It tries until the store accepts them, and reports false when ctx
// has ended before. Limits are stored, and not only kept here, since they hold over all nodes: the
// node that has started last decides.
func StoreQueueLimits(ctx context.Context, e *engine.Engine, log *slog.Logger, jobType string,
	limits map[string]job.QueueLimits) bool {
	loop := outage.Loop{Log: log, Name: "limits of queues"}
	return loop.Until(ctx, storeLimitsInterval, func(ctx context.Context) error {
		return e.LimitQueues(ctx, jobType, limits)
	})
}

// RateKey declares the rate of a queue, the member of a section (AD-032).
func RateKey(p *job.Rate) setting.Key {
	return setting.Define("rate", "", "Maximum number of jobs of the queue that start in every period, over "+
		"all nodes, such as 100/1m; no rate when empty.", rateValue(p))
}

// rateValue is a rate of starts, such as 100/1m, or empty for none.
func rateValue(p *job.Rate) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			s, ok := in.Text()
			r, valid := parseRate(s)
			if !ok || !valid {
				return fmt.Errorf("expected a rate such as 100/1m: from 1 to %d starts in %s to %s",
					job.MaxRateStarts, setting.FormatDuration(job.MinRatePeriod),
					setting.FormatDuration(job.MaxRatePeriod))
			}
			*p = r
			return nil
		},
		Show: func() string { return formatRate(*p) },
	}
}

// parseRate reads a rate such as 100/1m. The empty text is the zero rate.
func parseRate(s string) (r job.Rate, valid bool) {
	if s == "" {
		return r, true
	}
	text, period, _ := strings.Cut(s, "/")
	starts, isNumber := setting.Input{Raw: text, IsText: true}.Integer()
	r.Period, valid = setting.ParseDuration(period)
	r.Starts = int(starts)
	return r, valid && isNumber && !r.IsZero() && r.IsValid()
}

// formatRate writes a rate in the form that parseRate reads.
func formatRate(r job.Rate) string {
	if r.IsZero() {
		return ""
	}
	return strconv.Itoa(r.Starts) + "/" + setting.FormatDuration(r.Period)
}
