package demo

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/simulate"
)

// forgeRunSettings make ForgeRun's simulated time short enough to be watched. Jobs that fail on
// purpose are warnings in the log.
var forgeRunSettings = []string{"log.level=error", "forgerun.duration_scale=0.04",
	"forgerun.workers=8", "forgerun.backoff_base=200ms", "webhook.backoff_base=200ms"}

// forgeRunKinds are played one after another.
var forgeRunKinds = []client.ForgeRunKind{
	client.ForgeSuccessFast,
	client.ForgeCPUBurst,
	client.ForgeFailAfterProgress,
	client.ForgeRunsOverTimeout,
	client.ForgeRetryOnFail,
	client.ForgeRetryLimitReached,
	client.ForgeCancelDuringRun,
	client.ForgeScheduledOnTime,
	client.ForgeDuplicateSameKey,
	client.ForgeWebhookSuccess,
	client.ForgeWebhook5XX,
	client.ForgePayloadInvalid,
}

// forgeRun shows ForgeRun: it plays some work kinds once, as 'millrace simulate' would, and says
// whether the account of them balances.
func (d *demo) forgeRun(ctx context.Context) (bool, error) {
	played, err := simulate.PlayKinds(ctx, d.p, d.url, forgeRunKinds, stallTimeout)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(d.p.Stdout,
		"\n%d jobs in %s, a twenty-fifth of the time their kinds take; "+
			"%d webhook requests, each signature verified\n",
		played.Jobs, cli.FormatDuration(played.Took), played.Requests)
	for _, v := range played.Violations {
		fmt.Fprintf(d.p.Stdout, "  %s\n", v)
	}
	return len(played.Violations) == 0, nil
}
