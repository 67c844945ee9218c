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

// demoForgeSettings make ForgeRun's simulated time short enough to be watched. Jobs that fail on purpose are warnings in
// the log.
var demoForgeSettings = []string{"log.level=error", "forgerun.duration_scale=0.04", "forgerun.workers=8", "forgerun.backoff_base=200ms",
	"webhook.backoff_base=200ms"}

// demoForgeKinds are played one after another.
var demoForgeKinds = []client.ForgeRunKind{client.ForgeSuccessFast, client.ForgeCPUBurst, client.ForgeFailAfterProgress,
	client.ForgeRunsOverTimeout, client.ForgeRetryOnFail, client.ForgeRetryLimitReached, client.ForgeCancelDuringRun,
	client.ForgeScheduledOnTime, client.ForgeDuplicateSameKey, client.ForgeWebhookSuccess, client.ForgeWebhook5XX,
	client.ForgePayloadInvalid}

// forgeRun shows ForgeRun: it plays some work kinds once, as 'millrace simulate' would, and says whether the account of
// them balances.
func (d *demo) forgeRun(ctx context.Context) (bool, error) {
	mix := &simMix{}
	for _, name := range demoForgeKinds {
		mix.kinds = append(mix.kinds, &simKinds[slices.IndexFunc(simKinds, func(k simKind) bool { return k.name == name })])
	}
	s, err := newSimulator(d.p, &simulateFlags{remote: remoteFlags{server: d.url}, clients: 1, sink: "127.0.0.1",
		spoil: simSpoil{slow: time.Second}, settle: stall}, mix)
	if err != nil {
		return false, err
	}
	defer s.sink.stop()
	if err := s.prepare(ctx); err != nil {
		return false, remoteError(ctx, err)
	}
	bar := d.p.progress("forgerun", int64(len(mix.kinds)))
	playing, end := context.WithTimeoutCause(ctx, stall, errors.New("nothing came of it"))
	defer end()
	began := s.p.since()
	var plays sync.WaitGroup
	for n, kind := range mix.kinds {
		o, spec := s.order(kind, rand.New(rand.NewPCG(s.flags.seed, 1)), n)
		s.orders = append(s.orders, o)
		plays.Go(func() {
			s.play(playing, o, spec, func() {})
			bar.add(1, "work kinds played")
		})
	}
	plays.Wait()
	bar.end()
	world, err := s.collect(ctx)
	if err != nil {
		return false, remoteError(ctx, err)
	}
	took := s.p.since() - began
	s.sink.stop()
	verdict := world.audit()
	writeForge(d.p.stdout, world)
	requests, _ := s.sink.requests()
	fmt.Fprintf(d.p.stdout, "\n%d jobs in %s, a twenty-fifth of the time their kinds take; %d webhook requests, each signature verified\n",
		len(world.there), short(took), requests)
	for _, o := range verdict.offences {
		fmt.Fprintf(d.p.stdout, "  %s: %s %s: %s\n", o.What, o.Kind, o.Job, o.Detail)
	}
	return len(verdict.offences) == 0, nil
}

// writeForge writes a line for each play.
func writeForge(w io.Writer, world *simWorld) {
	there := map[string]*simThere{}
	for i := range world.there {
		there[world.there[i].job.ID] = &world.there[i]
	}
	fmt.Fprintf(w, "\nForgeRun: a client, its key, its webhooks, and jobs of %d kinds\n", len(world.orders))
	fmt.Fprintf(w, "  %-8s  %-26s %-10s %7s %9s %7s %5s\n", "job", "kind", "state", "attempt", "duration", "events", "told")
	for _, o := range world.orders {
		for _, id := range o.jobs() {
			t := there[id]
			if t == nil || t.report == nil {
				fmt.Fprintf(w, "  %-8.8s  %-26s has no report\n", id, o.kind.name)
				continue
			}
			fmt.Fprintf(w, "  %-8.8s  %-26s %-10s %7d %9s %7d %5d\n", id, o.kind.name, t.job.State, t.job.Attempt,
				short(time.Duration(t.report.DurationMS)*time.Millisecond), len(t.report.Events), world.told(id))
		}
		for _, one := range o.submits {
			if one.jobID == "" {
				fmt.Fprintf(w, "  %-8s  %-26s refused: %s%s\n", "-", o.kind.name, one.code, one.why)
			}
		}
	}
}

// told counts the webhook requests about a job that were accepted.
func (w *simWorld) told(jobID string) int {
	n := 0
	for _, h := range w.hooks {
		for _, r := range h.receipts[jobID] {
			if r.accepted {
				n++
			}
		}
	}
	return n
}
