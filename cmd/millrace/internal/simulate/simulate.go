package simulate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// flags are the flags of the command.
type flags struct {
	remote cli.RemoteFlags
	// rate is the number of scenarios a second, at most.
	rate float64
	// mix is as parseMix reads it.
	mix      string
	duration time.Duration
	// settleTimeout is how long jobs and webhooks may take after the load. It also bounds the time
	// without any answer of the server.
	settleTimeout time.Duration
	// clients is the number of clients besides those of kinds with a receiver of their own.
	clients int
	// concurrency is the number of scenarios under way, but for those that wait for their time.
	concurrency int
	// seed gives the same scenarios each time; 0 draws one.
	seed uint64
	// sink is the address on which webhooks are received.
	sink   string
	faults sinkFaults
	// lostRuns says that runs may be lost although the server was never unavailable.
	lostRuns bool
	asJSON   bool
}

// Command is `millrace simulate`.
func Command(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Put a ForgeRun server under the load of all work kinds, and account for every job",
		Long: `Make clients with keys of their own, submit jobs of the work kinds for a while, and
do what each kind asks for: cancel, retry, submit twice, give a time. Receive the
webhooks, with receivers that stall, fail and never accept for the WEBHOOK_ kinds.
Then wait until all jobs have ended and compare every acknowledged submission with
its job, its report, its events and its webhooks. The server may be killed and
started again meanwhile; a request without an answer is repeated under the same
idempotency key.

Exit code 0 when the accounts balance, 1 when they do not. When a signal comes
first, the code is 130, and only the scenarios that had ended are audited, without
their webhooks. A second signal ends it at once.

The jobs last as long as the work kinds say: a server with
--set forgerun.duration_scale=0.01 is done a hundred times sooner, and one with
more forgerun.workers sustains a higher rate. The server must be able to reach this
machine under the address of --sink.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			mix, err := f.validate()
			if err != nil {
				return err
			}
			return f.run(p, mix)
		},
	}
	f.register(c)
	return c
}

// register adds the flags to the command.
func (f *flags) register(c *cobra.Command) {
	f.remote.RegisterServer(c)
	c.Flags().Float64Var(&f.rate, "rate", 10,
		"scenarios a second, at most; a scenario is a job, for some kinds two")
	c.Flags().StringVar(&f.mix, "mix", "all",
		"work kinds as `KIND=WEIGHT,...`; KIND may end in *, all is every kind alike")
	c.Flags().DurationVar(&f.duration, "duration", 30*time.Second, "how long jobs are submitted")
	c.Flags().DurationVar(&f.settleTimeout, "settle", 15*time.Minute,
		"how long to wait for jobs and webhooks afterwards, and for a server that answers nothing, at most")
	c.Flags().IntVar(&f.clients, "clients", 4,
		"clients; four kinds with faulty receivers have one more each")
	c.Flags().IntVar(&f.concurrency, "concurrency", 64,
		"scenarios under way at a time, but for jobs that wait for their time")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "repeats the scenarios of that seed; 0 draws a seed")
	c.Flags().StringVar(&f.sink, "sink", "127.0.0.1",
		"`address` where webhooks are received, on ports of their own")
	c.Flags().Float64Var(&f.faults.drop, "refuse", 0,
		"`share` of events whose first delivery attempt the sink drops, from 0 to 1")
	c.Flags().Float64Var(&f.faults.stall, "stall", 0,
		"`share` of events whose first delivery attempt the sink never answers")
	c.Flags().Float64Var(&f.faults.fail, "fail", 0,
		"`share` of events whose first delivery attempt the sink answers 503")
	c.Flags().DurationVar(&f.faults.slow, "slow", time.Second,
		"how long the receiver of WEBHOOK_SLOW_RECEIVER takes to answer")
	c.Flags().BoolVar(&f.lostRuns, "lost-runs", false,
		"accept lost runs although the server was never unavailable: one of several nodes may have died")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

// validate refuses flags out of range and decodes the mix. Comparisons are written so that NaN,
// which a flag can hold, is out of range as well.
func (f *flags) validate() (*kindMix, error) {
	fractions := []float64{f.faults.drop, f.faults.stall, f.faults.fail}
	switch {
	case !(f.rate > 0) || f.rate > 1e6 || f.duration <= 0 || f.settleTimeout <= 0 ||
		f.faults.slow <= 0:
		return nil, cli.UsageError("--rate, --duration, --settle and --slow are more than 0")
	case f.clients < 1 || f.clients > 10_000 || f.concurrency < 1:
		return nil, cli.UsageError("--clients is from 1 to 10000, --concurrency at least 1")
	case slices.Min(fractions) < 0 || !(fractions[0]+fractions[1]+fractions[2] <= 1):
		return nil, cli.UsageError("--refuse, --stall and --fail are shares of a whole")
	}
	return parseMix(f.mix)
}

// run runs one simulation and returns its error with an exit code.
func (f *flags) run(p cli.Process, mix *kindMix) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	s, err := newSimulator(p, f, mix)
	if err != nil {
		return err
	}
	defer s.sink.stop()
	err = s.run(ctx)
	var coded *cli.ExitError
	if errors.As(err, &coded) {
		return err
	}
	return cli.RemoteError(ctx, err)
}

// simulator is one simulation. One goroutine runs its phases and draws its random numbers;
// scenarios are goroutines of their own, which share watches, outages, times and sink under the
// locks of these.
type simulator struct {
	p     cli.Process
	flags *flags
	mix   *kindMix
	// name distinguishes this simulation from others at the same server: its idempotency keys begin
	// with it.
	name string
	// setupClient gives up after a few attempts: a wrong address is found soon.
	setupClient *client.ForgeRun
	// api retries until the server answers.
	api *client.Client
	// address is the host and port of the server, for the probe.
	address string
	sink    *webhookSink
	// clients are by number.
	clients []*forgeClient
	// kindClients are the clients of kinds with a receiver of their own. They are in clients as
	// well.
	kindClients map[client.ForgeRunWorkKind]*forgeClient
	watches     jobWatches
	outages     outageLog
	times       submitTimes
	// silenceTimer ends the reading of forEachClient.
	silenceTimer *time.Timer

	// loadEnds is when the load is planned to end, by the clock of this machine.
	loadEnds time.Time
	// loadTime is the time that the load took.
	loadTime    time.Duration
	submissions []*submission
}

// newSimulator makes a simulator whose sink listens. The caller must stop the sink. Nothing is sent
// to the server yet. The seed is drawn here if there is none. The faults of the sink have a source
// of random numbers of their own, as they are drawn in the order in which requests come.
func newSimulator(p cli.Process, f *flags, mix *kindMix) (*simulator, error) {
	if f.seed == 0 {
		f.seed = mathrand.Uint64()
	}
	s := &simulator{p: p, flags: f, mix: mix, name: rand.Text()[:10],
		kindClients: map[client.ForgeRunWorkKind]*forgeClient{},
		watches:     jobWatches{jobs: map[string]*jobWatch{}}, outages: outageLog{now: p.Now}}
	transport, err := f.remote.Transport(p)
	if err != nil {
		return nil, err
	}
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 256, 256,
		30*time.Second
	cfg := client.Config{BaseURL: f.remote.Address(p), UserAgent: cli.UserAgent(),
		HTTPClient:     &http.Client{Transport: outageTransport{transport, &s.outages}},
		RequestTimeout: 15 * time.Second,
		Retry:          client.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second}}
	limited, err := client.New(cfg)
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	cfg.Retry.MaxTries = -1 // no limit: an outage of any length is part of the simulation
	if s.api, err = client.New(cfg); err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	s.setupClient = limited.ForgeRun()
	target, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	s.address = hostPort(target.Scheme, target.Host)
	s.sink, err = newSink(f.sink, p.Now, f.faults, mathrand.New(mathrand.NewPCG(f.seed, 2)),
		func(n client.ForgeRunWebhookEvent) {
			s.watches.record(n.JobID, n.Next, n.OccurredAt)
		})
	return s, err
}

// run goes through the phases of the simulation and prints the summary. After a signal it prints
// that of the scenarios that had ended. The sink is stopped before the summary is made, so that its
// counts agree with one another.
func (s *simulator) run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	probing, stopProbing := context.WithCancel(ctx)
	var probe sync.WaitGroup
	probe.Go(func() { s.outages.probe(probing, s.address) })
	defer probe.Wait()
	defer stopProbing()

	s.loadAndSettle(ctx)
	snapshot, err := s.collect(ctx)
	if ctx.Err() != nil {
		snapshot, err = s.partial(ctx)
	}
	if err != nil {
		return fmt.Errorf("the jobs cannot be audited: %w", err)
	}
	outages, limited, full := s.outages.counts()
	snapshot.outages, snapshot.lostRuns = outages, s.flags.lostRuns
	s.sink.stop() // nothing changes from here on
	summary := s.summarize(snapshot, snapshot.audit(), limited, full)
	if err := summary.write(s.p.Stdout, s.flags.asJSON); err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	switch {
	case summary.Interrupted:
		return cli.ErrInterrupted
	case !summary.Balanced:
		return cli.FailedError("the accounts do not balance: %d violations", summary.Violations)
	}
	return nil
}

// loadAndSettle starts scenarios at the rate until the time of the load has passed, and waits until
// all have ended, for settleTimeout at most.
//
//	waitUntil next ──▶ a slot of --concurrency ──▶ planSubmission ──▶ go runScenario
//
// A load that cannot keep up, because all slots are taken, falls behind its rate and catches up on
// no more than maxLag. Scenarios that have not ended in time end with an error, which the audit
// reports.
func (s *simulator) loadAndSettle(ctx context.Context) {
	running, end := context.WithTimeoutCause(ctx, s.flags.duration+s.flags.settleTimeout,
		errors.New("it did not end within --settle"))
	defer end()
	random := mathrand.New(mathrand.NewPCG(s.flags.seed, 1))
	draw := s.mix.newDraw(random)
	slots := make(chan struct{}, s.flags.concurrency)
	var scenarios sync.WaitGroup
	count := &scenarioProgress{elapsed: s.p.Elapsed,
		bar: s.p.NewProgress("load", s.flags.duration.Milliseconds()), reportedAt: s.p.Elapsed()}
	count.bar.TotalUnit = " of the time"
	started := s.p.Elapsed()
	ends, next := started+s.flags.duration, started
	s.loadEnds = s.p.Now().UTC().Add(s.flags.duration)
	for s.waitUntil(ctx, next, ends) {
		next = max(next+time.Duration(float64(time.Second)/s.flags.rate), s.p.Elapsed()-maxLag)
		select {
		case slots <- struct{}{}:
		case <-running.Done():
		}
		if ctx.Err() != nil || s.p.Elapsed() >= ends {
			break
		}
		o, spec := s.planSubmission(draw(), random, len(s.submissions))
		s.submissions = append(s.submissions, o)
		count.start()
		scenarios.Go(func() {
			s.runScenario(running, o, spec, sync.OnceFunc(func() { <-slots }))
			count.end()
		})
	}
	s.loadTime = s.p.Elapsed() - started
	count.startSettling(s.p)
	scenarios.Wait()
	count.bar.End()
}

// maxLag is how far the load may fall behind its rate and catch up afterwards. A longer delay, such
// as one in which all slots were taken, must not be followed by a burst.
const maxLag = 200 * time.Millisecond

// waitUntil waits until next and reports whether the load still goes on then. Both times count from
// the start of the process.
func (s *simulator) waitUntil(ctx context.Context, next, ends time.Duration) bool {
	if next >= ends || ctx.Err() != nil {
		return false
	}
	return clock.Sleep(ctx, next-s.p.Elapsed())
}

// scenarioProgress shows how many scenarios have started and ended. Its bar counts the time during
// the load, and the scenarios while they settle.
type scenarioProgress struct {
	elapsed    func() time.Duration
	mu         sync.Mutex
	bar        *cli.Progress
	reportedAt time.Duration // the time that the bar has counted
	started    int
	ended      int
	settling   bool
}

// note is the text beside the bar.
func (c *scenarioProgress) note() string {
	return fmt.Sprintf("%s started, %d ended", cli.Pluralize(int64(c.started), "scenario"), c.ended)
}

// start counts a scenario that starts. It moves the bar by the whole milliseconds that have passed;
// the rest of a millisecond is kept for the next call.
func (c *scenarioProgress) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	passed := (c.elapsed() - c.reportedAt).Truncate(time.Millisecond)
	c.reportedAt += passed
	c.bar.Add(passed.Milliseconds(), c.note())
}

// end counts a scenario that has ended.
func (c *scenarioProgress) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if c.settling {
		c.bar.Add(1, c.note())
	}
}

// startSettling replaces the bar of the time by one of the scenarios.
func (c *scenarioProgress) startSettling(p cli.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar.End()
	c.settling = true
	c.bar = p.NewProgress("settle", int64(c.started))
	c.bar.TotalUnit = " of the scenarios"
	c.bar.Add(int64(c.ended), c.note())
}
