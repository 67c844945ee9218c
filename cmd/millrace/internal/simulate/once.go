package simulate

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
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The demo shows ForgeRun with the simulator: one scenario of each of a few kinds, audited in the
// same way as a whole simulation.

// Result is the result of [RunKinds].
type Result struct {
	Jobs int
	// Took is the time from the first submission until everything was read.
	Took time.Duration
	// Requests are the webhook requests that were received.
	Requests   int
	Violations []Violation
}

// RunKinds runs one scenario for each of the kinds at the server with the URL, all at the same time
// and with one client. It audits the jobs and writes a line for each to the standard output. A
// scenario that has not ended within the timeout is a violation. An error means that the server
// could not be used.
func RunKinds(ctx context.Context, p cli.Process, server string, kinds []client.ForgeRunWorkKind,
	timeout time.Duration) (*Result, error) {
	mix := &kindMix{}
	for _, name := range kinds {
		mix.kinds = append(mix.kinds, &catalogue[slices.IndexFunc(catalogue, func(k workKind) bool {
			return k.name == name
		})])
	}
	s, err := newSimulator(p, &flags{remote: cli.RemoteFlags{Server: server}, clients: 1,
		sink: "127.0.0.1", faults: sinkFaults{slow: time.Second}, settleTimeout: timeout}, mix)
	if err != nil {
		return nil, err
	}
	defer s.sink.stop()
	if err := s.prepare(ctx); err != nil {
		return nil, cli.RemoteError(ctx, err)
	}
	started := p.Elapsed()
	s.runOnce(ctx)
	snapshot, err := s.collect(ctx)
	if err != nil {
		return nil, cli.RemoteError(ctx, err)
	}
	took := p.Elapsed() - started
	s.sink.stop()
	writeJobs(p.Stdout, snapshot)
	requests, _ := s.sink.requests()
	return &Result{Jobs: len(snapshot.observed), Took: took, Requests: requests,
		Violations: snapshot.audit().violations}, nil
}

// runOnce runs a scenario for every kind of the mix at the same time and waits until all have
// ended, for settleTimeout at most. It does not draw from the mix, which has no weights here.
func (s *simulator) runOnce(ctx context.Context) {
	bar := s.p.NewProgress("forgerun", int64(len(s.mix.kinds)))
	defer bar.End()
	running, end := context.WithTimeoutCause(ctx, s.flags.settleTimeout,
		errors.New("it did not end in time"))
	defer end()
	var scenarios sync.WaitGroup
	for n, kind := range s.mix.kinds {
		o, spec := s.planSubmission(kind, rand.New(rand.NewPCG(s.flags.seed, 1)), n)
		s.submissions = append(s.submissions, o)
		scenarios.Go(func() {
			s.runScenario(running, o, spec, func() {})
			bar.Add(1, "work kinds done")
		})
	}
	scenarios.Wait()
}

// writeJobs writes a line for each job, and for each submission that was refused.
func writeJobs(w io.Writer, snapshot *history) {
	byID := map[string]*observedJob{}
	for i := range snapshot.observed {
		byID[snapshot.observed[i].job.ID] = &snapshot.observed[i]
	}
	fmt.Fprintf(w, "\nForgeRun: a client, its key, its webhooks, and jobs of %d kinds\n",
		len(snapshot.submissions))
	fmt.Fprintf(w, "  %-8s  %-26s %-10s %7s %9s %7s %8s\n", "job", "kind", "state", "attempt",
		"duration", "events", "webhooks")
	for _, o := range snapshot.submissions {
		for _, id := range o.jobs() {
			t := byID[id]
			if t == nil || t.report == nil {
				fmt.Fprintf(w, "  %-8.8s  %-26s has no report\n", id, o.kind.name)
				continue
			}
			fmt.Fprintf(w, "  %-8.8s  %-26s %-10s %7d %9s %7d %8d\n", id, o.kind.name, t.job.State,
				t.job.Attempt,
				cli.FormatDuration(time.Duration(t.report.DurationMS)*time.Millisecond),
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

// countAccepted counts the webhook requests about a job that receivers accepted.
func (w *history) countAccepted(jobID string) int {
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
