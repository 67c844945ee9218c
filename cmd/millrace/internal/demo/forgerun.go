package demo

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/simulate"
)

// forgeRunSettings make ForgeRun's simulated work short enough to be watched. The log has errors
// only: jobs that fail on purpose are warnings.
var forgeRunSettings = []string{"log.level=error", "forgerun.duration_scale=0.04",
	"forgerun.workers=8", "forgerun.backoff_base=200ms", "webhook.backoff_base=200ms"}

// forgeRunKinds are the work kinds that are shown, one scenario of each.
var forgeRunKinds = []client.ForgeRunWorkKind{
	client.ForgeRunWorkSuccessFast,
	client.ForgeRunWorkCPUBurst,
	client.ForgeRunWorkFailAfterProgress,
	client.ForgeRunWorkRunsOverTimeout,
	client.ForgeRunWorkRetryOnFail,
	client.ForgeRunWorkRetryLimitReached,
	client.ForgeRunWorkCancelDuringRun,
	client.ForgeRunWorkScheduledOnTime,
	client.ForgeRunWorkDuplicateSameKey,
	client.ForgeRunWorkWebhookSuccess,
	client.ForgeRunWorkWebhook5XX,
	client.ForgeRunWorkPayloadInvalid,
}

// forgeRun shows ForgeRun: it runs a scenario of some work kinds, as `millrace simulate` does, and
// reports whether the audit finds no violation. The jobs are at the same server, whose settings
// make them last a twenty-fifth of the time that their kinds say.
func (d *demo) forgeRun(ctx context.Context) (bool, error) {
	result, err := simulate.RunKinds(ctx, d.p, d.url, forgeRunKinds, stallTimeout)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(d.p.Stdout,
		"\n%d jobs in %s, a twenty-fifth of the time their kinds take; "+
			"%d webhook requests, each signature verified\n",
		result.Jobs, cli.FormatDuration(result.Took), result.Requests)
	for _, v := range result.Violations {
		fmt.Fprintf(d.p.Stdout, "  %s\n", v)
	}
	return len(result.Violations) == 0, nil
}
