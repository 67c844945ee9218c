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

type flags struct {
	remote        cli.RemoteFlags
	rate          float64
	mix           string
	duration      time.Duration
	settleTimeout time.Duration
	clients       int
	concurrency   int
	seed          uint64
	sink          string
	faults        sinkFaults
	lostRuns      bool
	asJSON        bool
}

func Command(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Put a ForgeRun server under the load of all work kinds, and account for every job",
		Long: `Make clients with keys of their own, submit jobs of the work kinds for a while, and
do what each kind asks for: cancel, retry, submit twice, give a time. Receive the
webhooks, with receivers that stall, fail and never accept for the WEBHOOK_ kinds.
Then wait until all have ended and hold every acknowledged submit against its job,
its report, its events and what was delivered. The server may be killed and
started again meanwhile; what it did not answer is asked again under the same
idempotency key.

Exit code 0 when the accounts balance, 1 when they do not, 130 when a signal came
before they were made: then those of the plays that had ended are, without the
webhooks. A second signal ends it at once.

The jobs last as long as the work kinds say: a server with
--set forgerun.duration_scale=0.01 is done a hundred times sooner, and one with
more forgerun.workers takes a higher rate. The server must be able to reach this
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
	f.remote.RegisterServer(c)
	c.Flags().Float64Var(&f.rate, "rate", 10,
		"plays a second, at most; a play is a job, for some kinds two")
	c.Flags().StringVar(&f.mix, "mix", "all",
		"work kinds as `KIND=WEIGHT,...`; KIND may end in *, all is every kind alike")
	c.Flags().DurationVar(&f.duration, "duration", 30*time.Second, "how long jobs are submitted")
	c.Flags().DurationVar(&f.settleTimeout, "settle", 15*time.Minute,
		"how long to wait for jobs and webhooks afterwards, and for a server that answers nothing, at most")
	c.Flags().IntVar(&f.clients, "clients", 4,
		"clients; four kinds of webhook troubles have one more each")
	c.Flags().IntVar(&f.concurrency, "concurrency", 64,
		"plays under way at a time, but for jobs that wait for their time")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "draws the same plays again; 0 draws one")
	c.Flags().StringVar(&f.sink, "sink", "127.0.0.1",
		"`address` where webhooks are received, on ports of their own")
	c.Flags().Float64Var(&f.faults.drop, "refuse", 0,
		"`share` of events whose first try the sink drops, from 0 to 1")
	c.Flags().Float64Var(&f.faults.stall, "stall", 0,
		"`share` of events whose first try the sink never answers")
	c.Flags().Float64Var(&f.faults.fail, "fail", 0,
		"`share` of events whose first try the sink answers 503")
	c.Flags().DurationVar(&f.faults.slow, "slow", time.Second,
		"how long the receiver of WEBHOOK_SLOW_RECEIVER takes to answer")
	c.Flags().BoolVar(&f.lostRuns, "lost-runs", false,
		"accept lost runs though the server was never away: one of several nodes may have died")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

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

// simulator is one simulation.
type simulator struct {
	p            cli.Process
	flags        *flags
	mix          *kindMix
	name         string // of this simulation, in its idempotency keys
	setupClient  *client.ForgeRun
	api          *client.Client
	address      string
	sink         *webhookSink
	clients      []*forgeClient
	laneClients  map[client.ForgeRunKind]*forgeClient
	watches      jobWatches
	outages      outageLog
	times        submitTimes
	silenceTimer *time.Timer // of each

	loadEnds    time.Time
	submissions []*submission
	loadTime    time.Duration // of the load
}

func newSimulator(p cli.Process, f *flags, mix *kindMix) (*simulator, error) {
	if f.seed == 0 {
		f.seed = mathrand.Uint64()
	}
	s := &simulator{p: p, flags: f, mix: mix, name: rand.Text()[:10],
		laneClients: map[client.ForgeRunKind]*forgeClient{},
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
	hasty, err := client.New(cfg)
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	cfg.Retry.MaxTries = -1 // whatever happens, the answer is waited for
	if s.api, err = client.New(cfg); err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	s.setupClient = hasty.ForgeRun()
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

// run goes through the phases: prepare, load, settle, account.
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
		return fmt.Errorf("the account cannot be made: %w", err)
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
		return cli.FailedError("the accounts do not balance: %d offences", summary.Violations)
	}
	return nil
}

// loadAndSettle begins plays at the rate until the load is over, and waits until they have all
// ended.
func (s *simulator) loadAndSettle(ctx context.Context) {
	playing, end := context.WithTimeoutCause(ctx, s.flags.duration+s.flags.settleTimeout,
		errors.New("it did not end within --settle"))
	defer end()
	random := mathrand.New(mathrand.NewPCG(s.flags.seed, 1))
	draw := s.mix.newDraw(random)
	slots := make(chan struct{}, s.flags.concurrency)
	var plays sync.WaitGroup
	count := &playProgress{since: s.p.Elapsed,
		bar: s.p.NewProgress("load", s.flags.duration.Milliseconds()), reportedAt: s.p.Elapsed()}
	count.bar.TotalUnit = " of the time"
	started := s.p.Elapsed()
	ends, next := started+s.flags.duration, started
	s.loadEnds = s.p.Now().UTC().Add(s.flags.duration)
	for s.waitUntil(ctx, next, ends) {
		next = max(next+time.Duration(float64(time.Second)/s.flags.rate), s.p.Elapsed()-catchUp)
		select {
		case slots <- struct{}{}:
		case <-playing.Done():
		}
		if ctx.Err() != nil || s.p.Elapsed() >= ends {
			break
		}
		o, spec := s.planSubmission(draw(), random, len(s.submissions))
		s.submissions = append(s.submissions, o)
		count.begin()
		plays.Go(func() {
			s.runSubmission(playing, o, spec, sync.OnceFunc(func() { <-slots }))
			count.end()
		})
	}
	s.loadTime = s.p.Elapsed() - started
	count.startSettling(s.p)
	plays.Wait()
	count.bar.End()
}

// catchUp is how far the load may fall behind its rate and hurry afterwards.
const catchUp = 200 * time.Millisecond

// waitUntil waits until next, which is a time since the beginning; false when the load is over
// before it.
func (s *simulator) waitUntil(ctx context.Context, next, ends time.Duration) bool {
	if next >= ends || ctx.Err() != nil {
		return false
	}
	return clock.Sleep(ctx, next-s.p.Elapsed())
}

// playProgress tells how many plays have begun and ended: of the load how much of its time is over,
// and after it how many of its plays.
type playProgress struct {
	since      func() time.Duration
	mu         sync.Mutex
	bar        *cli.Progress
	reportedAt time.Duration // up to when the bar knows of the time
	started    int
	ended      int
	settling   bool
}

func (c *playProgress) note() string {
	return fmt.Sprintf("%s begun, %d ended", cli.Pluralize(int64(c.started), "play"), c.ended)
}

func (c *playProgress) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	passed := (c.since() - c.reportedAt).Truncate(time.Millisecond)
	c.reportedAt += passed
	c.bar.Add(passed.Milliseconds(), c.note())
}

func (c *playProgress) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if c.settling {
		c.bar.Add(1, c.note())
	}
}

// settle changes from what begins to what ends.
func (c *playProgress) startSettling(p cli.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar.End()
	c.settling = true
	c.bar = p.NewProgress("settle", int64(c.started))
	c.bar.TotalUnit = " of the plays"
	c.bar.Add(int64(c.ended), c.note())
}
