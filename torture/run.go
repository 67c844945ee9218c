package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// drainTimeout is how long no job may end after the faults while some are left, where no flag says
// otherwise: the longest lease, the longest delay of a retry, jobs that are kept for one more lease
// after a stall, and a graph of ten jobs. A long run leaves more than can be done in that time.
const drainTimeout = 60 * time.Second

// resendTimeout is in which time Images sends messages again that streams have lost: those of jobs
// that are a minute old, each half a minute.
const resendTimeout = 3 * time.Minute

// longestWait is how long nothing may end while something is left.
func (p *plan) longestWait() time.Duration {
	if p.Only == faultStreamsWiped || p.Only == faultMessages {
		return max(p.Wait, resendTimeout)
	}
	return p.Wait
}

// drain watches whether what has to become less still does.
type drain struct {
	timeout time.Duration
	least   int
	since   time.Time
}

// hasStalled reports whether n is not less than it was a timeout ago.
func (d *drain) hasStalled(n int) bool {
	if d.since.IsZero() || n < d.least {
		d.least, d.since = n, time.Now()
	}
	return time.Since(d.since) >= d.timeout
}

// run is one run: the servers, what disturbs them, and the ledger.
type run struct {
	plan     *plan
	faults   []fault
	output   io.Writer
	client   *http.Client
	limit    *rate.Limiter // of all requests that are in the ledger
	ledger   *ledger
	nodes    []*node
	proxies  []*proxy  // one for each node, on PostgreSQL
	database *database // nil on SQLite
	cluster  *cluster  // nil where no fault is a failover, or Patroni does it
	patroni  *patroniCluster
	hosts    string    // of the servers of a cluster, as the nodes are given them
	pooler   *pooler   // nil where the nodes have connections of their own
	disk     *disk     // nil where the faults need none
	services *services // nil where nodes have objects and streams of their own
	server   *pgServer // that serverFaults harm, nil for none
	callers  *sqlLoad  // nil where no caller has transactions of its own

	origin           *origin
	forge            []*forgeClient // the clients of ForgeRun
	actors           uint64
	actorsRunning    sync.WaitGroup
	producersRunning sync.WaitGroup // of the actors, those that may still make jobs
	done             int            // faults that were carried out
	failovers        []failedOver
	growth           []growth
	wiped            int64 // when streams were lost for the last time; 0 is never
	drained          time.Duration
	violations       violations
}

// newLimit makes the limit of a load. It lets through what came in a tenth of a second at once.
func newLimit(perSecond int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), 1+perSecond/10)
}

// log writes a line of the report.
func (r *run) log(format string, args ...any) { fmt.Fprintf(r.output, format+"\n", args...) }

// execute carries out a plan and returns the verdict. An error means that there is none.
func execute(ctx context.Context, p *plan, output io.Writer) (_ *verdict, err error) {
	r := &run{plan: p, faults: p.schedule(), output: output,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		limit:  newLimit(p.Rate)}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.loadAndDrain(ctx); err != nil {
		return r.endEarly(err)
	}
	ops, err := r.ledger.close()
	if err != nil {
		return nil, err
	}
	f, err := r.read(ctx, ops)
	if err != nil {
		return r.endEarly(err)
	}
	return r.conclude(ops, f), nil
}

// prepare makes what the nodes need and starts them.
func (r *run) prepare(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.plan.Dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.plan.Dir, "pepper"),
		[]byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		return err
	}
	if r.ledger, err = newLedger(filepath.Join(r.plan.Dir, "ledger.jsonl")); err != nil {
		return err
	}
	if r.disk, err = mountFor(r.plan, r.faults); err != nil {
		return err
	}
	if err := r.prepareDatabase(ctx); err != nil {
		return err
	}
	canary, err := newCanary()
	if err != nil {
		return err
	}
	if r.origin, err = newOrigin(canary); err != nil {
		return err
	}
	if r.services, err = startServices(ctx, r.plan); err != nil {
		return err
	}
	for i := range r.plan.Nodes {
		if err := r.addNode(ctx, i); err != nil {
			return err
		}
	}
	return r.addForgeClients(ctx)
}

// prepareDatabase makes the database of a run on PostgreSQL, for some faults on servers of its own.
func (r *run) prepareDatabase(ctx context.Context) (err error) {
	if r.plan.Store != "postgres" {
		return nil
	}
	server := r.plan.Postgres
	switch {
	case isPatroni(r.plan.Only):
		if r.patroni, err = newPatroni(ctx, r.plan); err != nil {
			return err
		}
		server, r.hosts = r.patroni.leader().server.url(), r.patroni.addresses()
	case isFailover(r.plan.Only):
		if r.cluster, err = newCluster(ctx, r.plan); err != nil {
			return err
		}
		server, r.hosts = r.cluster.leader().url(), r.cluster.addresses()
	}
	if slices.Contains(serverFaults, r.plan.Only) {
		if r.server, err = newServer(ctx, r.plan); err != nil {
			return err
		}
		server = r.server.url()
	}
	if r.database, err = newDatabase(server, r.plan.Seed); err != nil || !r.plan.Pooled {
		return err
	}
	r.pooler, err = newPooler(ctx, r.plan, r.database.url)
	return err
}

// addNode starts a node, on PostgreSQL with a proxy between it and the database. Nodes of a cluster
// know the addresses of its servers.
func (r *run) addNode(ctx context.Context, number int) error {
	store := "sqlite"
	switch {
	case r.hosts != "":
		store = r.database.through(r.hosts) +
			"&target_session_attrs=read-write&connect_timeout=2"
	case r.database != nil:
		target := r.database.url.Host
		if r.pooler != nil {
			target = r.pooler.address
		}
		p, err := newProxy(target)
		if err != nil {
			return err
		}
		r.proxies = append(r.proxies, p)
		store = r.database.through(p.address())
	}
	var shared []string
	if r.services != nil {
		shared = r.services.settings
	}
	n, err := newNode(number, r.plan, store, shared)
	if err != nil {
		return err
	}
	r.nodes = append(r.nodes, n)
	if err := r.restart(ctx, n); err != nil || number > 0 {
		return err
	}
	return r.openCallers(ctx, store)
}

// loadAndDrain loads the servers while the nemesis disturbs them, heals them, and lets the workers
// bring all jobs to their ends.
func (r *run) loadAndDrain(ctx context.Context) error {
	load, stopLoad := context.WithTimeout(ctx, r.plan.Load)
	defer stopLoad()
	disturb := r.disturb
	if r.plan.Points != "" {
		load, stopLoad = context.WithCancel(ctx)
		defer stopLoad()
		disturb = r.crashAtPoints
	}
	drained, stopWorkers := context.WithCancel(ctx)
	watched := make(chan []*processLife)
	go func() { watched <- r.watchUsage(load) }()
	defer func() {
		lives := <-watched
		r.growth = growthOf(lives)
		r.violations.checkUsage(lives)
	}()
	defer stopLoad()
	(&relayLoad{run: r}).load(load, drained)
	(&taskflowLoad{run: r}).load(load, drained)
	(&forgeLoad{run: r}).load(load)
	if r.plan.hasObjects() {
		(&fetchLoad{run: r}).load(load)
		(&imagesLoad{run: r}).load(load)
	}
	(&operatorLoad{r}).load(load)
	r.callers.load(load)
	published := (&fetchLoad{run: r}).loadDirect(load)
	defer r.actorsRunning.Wait()
	defer r.producersRunning.Wait()
	defer stopWorkers()
	err := errors.Join(published, disturb(load))
	if err != nil || r.plan.Points != "" {
		stopLoad()
	}
	if err != nil {
		return err
	}
	<-load.Done()
	r.limit.SetLimit(rate.Inf) // what is left is not load
	r.producersRunning.Wait()  // a last request may make jobs when no other is left
	for _, c := range r.forge {
		c.sink.behave()
	}
	return r.awaitDrained(ctx)
}

// startActor starts an actor that both makes jobs and works: until load ends it makes some before
// it works each time, then it works until drained ends.
func (r *run) startActor(load, drained context.Context, produce, work func()) {
	r.producersRunning.Add(1)
	r.actorsRunning.Go(func() {
		for load.Err() == nil {
			produce()
			work()
		}
		r.producersRunning.Done()
		for drained.Err() == nil {
			work()
		}
	})
}

// awaitDrained waits until no job is left to be done. Jobs that are left in the end are violations,
// which the audit finds.
func (r *run) awaitDrained(ctx context.Context) error {
	db, err := r.openSQL()
	if err != nil {
		return err
	}
	defer db.Close()
	start, d := time.Now(), drain{timeout: r.plan.longestWait()}
	for {
		n, err := countUnfinished(ctx, db)
		if err != nil {
			return err
		}
		tasks, err := r.pendingTasks(ctx)
		if err != nil {
			return err
		}
		requests, err := r.callers.waiting(ctx, db)
		if err != nil {
			return err
		}
		if n += tasks + requests; n == 0 || d.hasStalled(n) {
			break
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	r.drained = time.Since(start)
	return nil
}

// read reads all jobs by API, ends the nodes, and reads the jobs by SQL.
func (r *run) read(ctx context.Context, ops []*op) (*final, error) {
	f, err := r.readAPI(ctx, ops)
	if err != nil {
		return nil, err
	}
	f.Wiped = r.wiped
	for _, n := range r.nodes {
		if err := n.terminate(); err != nil {
			r.violations.add("stop", "%v", err)
		}
	}
	db, err := r.openSQL()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := errors.Join(readSQL(ctx, db, f, r.database == nil),
		r.callers.read(ctx, db, f)); err != nil {
		return nil, err
	}
	if !losesAcknowledged(r.plan.Only) {
		f.failUncommitted(ops)
	}
	if s := r.ownServer(); s != nil {
		damage, err := s.checkPages(r.database.name)
		if damage != "" {
			f.Faults = append(f.Faults, "pg_amcheck: "+damage)
		}
		return f, err
	}
	return f, nil
}

// ownServer returns the PostgreSQL server that torture has started and that has the jobs at the
// end; nil for none.
func (r *run) ownServer() *pgServer {
	switch {
	case r.patroni != nil:
		return r.patroni.leader().server
	case r.cluster != nil:
		return r.cluster.leader()
	}
	return r.server
}

// close ends the processes that are left of a run.
func (r *run) close() error {
	r.client.CloseIdleConnections()
	var errs []error
	for _, n := range r.nodes {
		n.kill()
		errs = append(errs, n.log.Close())
	}
	for _, p := range r.proxies {
		errs = append(errs, p.Close())
	}
	errs = append(errs, r.callers.close(), r.pooler.close())
	r.services.close()
	for _, c := range r.forge {
		errs = append(errs, c.sink.server.Close())
	}
	if r.origin != nil {
		errs = append(errs, r.origin.server.Close(), r.origin.canary.server.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.kill(), r.server.log.Close())
	}
	// What torture's own servers have is removed with them.
	if r.database != nil && r.hosts == "" && r.server == nil {
		errs = append(errs, r.database.drop())
	}
	errs = append(errs, r.cluster.close(), r.patroni.close(), r.disk.close())
	if r.server != nil {
		errs = append(errs, os.RemoveAll(r.server.dir))
	}
	return errors.Join(errs...)
}
