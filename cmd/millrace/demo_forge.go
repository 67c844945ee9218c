package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
)

// demoForgeSettings make ForgeRun's simulated time short enough to be watched. Jobs that fail on
// purpose are warnings in the log.
var demoForgeSettings = []string{"log.level=error", "forgerun.duration_scale=0.04",
	"forgerun.workers=8", "forgerun.backoff_base=200ms", "webhook.backoff_base=200ms"}

// demoForgeKinds are played one after another.
var demoForgeKinds = []client.ForgeRunKind{client.ForgeSuccessFast, client.ForgeCPUBurst,
	client.ForgeFailAfterProgress,
	client.ForgeRunsOverTimeout, client.ForgeRetryOnFail, client.ForgeRetryLimitReached,
	client.ForgeCancelDuringRun,
	client.ForgeScheduledOnTime, client.ForgeDuplicateSameKey, client.ForgeWebhookSuccess,
	client.ForgeWebhook5XX, client.ForgePayloadInvalid}

// forgeRun shows ForgeRun: it plays some work kinds once, as 'millrace simulate' would, and says
// whether the account of them balances.
func (d *demo) forgeRun(ctx context.Context) (bool, error) {
	mix := &simMix{}
	for _, name := range demoForgeKinds {
		mix.kinds = append(mix.kinds, &simKinds[slices.IndexFunc(simKinds, func(k simKind) bool {
			return k.name == name
		})])
	}
	s, err := newSimulator(d.p, &simulateFlags{remote: remoteFlags{server: d.url}, clients: 1,
		sink: "127.0.0.1", faults: simFaults{slow: time.Second}, settleTimeout: stallTimeout}, mix)
	if err != nil {
		return false, err
	}
	defer s.sink.stop()
	if err := s.prepare(ctx); err != nil {
		return false, remoteError(ctx, err)
	}
	bar := d.p.newProgress("forgerun", int64(len(mix.kinds)))
	playing, end := context.WithTimeoutCause(ctx, stallTimeout, errors.New("nothing came of it"))
	defer end()
	started := s.p.elapsed()
	var plays sync.WaitGroup
	for n, kind := range mix.kinds {
		o, spec := s.planSubmission(kind, rand.New(rand.NewPCG(s.flags.seed, 1)), n)
		s.submissions = append(s.submissions, o)
		plays.Go(func() {
			s.runSubmission(playing, o, spec, func() {})
			bar.add(1, "work kinds played")
		})
	}
	plays.Wait()
	bar.end()
	snapshot, err := s.collect(ctx)
	if err != nil {
		return false, remoteError(ctx, err)
	}
	took := s.p.elapsed() - started
	s.sink.stop()
	report := snapshot.audit()
	writeForge(d.p.stdout, snapshot)
	requests, _ := s.sink.requests()
	fmt.Fprintf(d.p.stdout,
		"\n%d jobs in %s, a twenty-fifth of the time their kinds take; %d webhook requests, each signature verified\n",
		len(snapshot.observed), formatDuration(took), requests)
	for _, o := range report.violations {
		fmt.Fprintf(d.p.stdout, "  %s: %s %s: %s\n", o.What, o.Kind, o.Job, o.Detail)
	}
	return len(report.violations) == 0, nil
}

// writeForge writes a line for each play.
func writeForge(w io.Writer, snapshot *simSnapshot) {
	there := map[string]*simObservedJob{}
	for i := range snapshot.observed {
		there[snapshot.observed[i].job.ID] = &snapshot.observed[i]
	}
	fmt.Fprintf(w, "\nForgeRun: a client, its key, its webhooks, and jobs of %d kinds\n",
		len(snapshot.submissions))
	fmt.Fprintf(w, "  %-8s  %-26s %-10s %7s %9s %7s %5s\n", "job", "kind", "state", "attempt",
		"duration", "events", "told")
	for _, o := range snapshot.submissions {
		for _, id := range o.jobs() {
			t := there[id]
			if t == nil || t.report == nil {
				fmt.Fprintf(w, "  %-8.8s  %-26s has no report\n", id, o.kind.name)
				continue
			}
			fmt.Fprintf(w, "  %-8.8s  %-26s %-10s %7d %9s %7d %5d\n", id, o.kind.name, t.job.State,
				t.job.Attempt,
				formatDuration(time.Duration(t.report.DurationMS)*time.Millisecond),
				len(t.report.Events), snapshot.countAccepted(id))
		}
		for _, one := range o.requests {
			if one.jobID == "" {
				fmt.Fprintf(w, "  %-8s  %-26s refused: %s%s\n", "-", o.kind.name, one.code,
					one.failure)
			}
		}
	}
}

// told counts the webhook requests about a job that were accepted.
func (w *simSnapshot) countAccepted(jobID string) int {
	n := 0
	for _, h := range w.receivers {
		for _, r := range h.receipts[jobID] {
			if r.accepted {
				n++
			}
		}
	}
	return n
}
