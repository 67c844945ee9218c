package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// drainTimeout is how long jobs may take to end after the faults: the longest lease, the longest
// delay of a retry, what is kept for one more lease after a stall, and a graph of ten jobs.
const drainTimeout = 60 * time.Second

// run is one run: the servers, what disturbs them, and the ledger.
type run struct {
	plan     *plan
	faults   []fault
	output   io.Writer
	client   *http.Client
	ledger   *ledger
	nodes    []*node
	proxies  []*proxy  // one for each node, on PostgreSQL
	database *database // nil on SQLite
	disk     *disk     // nil where the faults need none

	origin        *origin
	forge         []*forgeClient // the clients of ForgeRun
	actors        uint64
	actorsRunning sync.WaitGroup
	done          int // faults that were carried out
	drained       time.Duration
	violations    violations
}

// log writes a line of the report.
func (r *run) log(format string, args ...any) { fmt.Fprintf(r.output, format+"\n", args...) }

// execute carries out a plan and returns the verdict. An error means that there is none.
func execute(ctx context.Context, p *plan, output io.Writer) (_ *verdict, err error) {
	r := &run{plan: p, faults: p.schedule(), output: output,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.loadAndDrain(ctx); err != nil {
		return nil, err
	}
	ops, err := r.ledger.close()
	if err != nil {
		return nil, err
	}
	f, err := r.read(ctx, ops)
	if err != nil {
		return nil, err
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
	if r.plan.Store == "postgres" {
		if r.database, err = newDatabase(r.plan.Postgres, r.plan.Seed); err != nil {
			return err
		}
	}
	canary, err := newCanary()
	if err != nil {
		return err
	}
	if r.origin, err = newOrigin(canary); err != nil {
		return err
	}
	if r.disk, err = mountFor(r.plan, r.faults); err != nil {
		return err
	}
	for i := range r.plan.Nodes {
		if err := r.addNode(ctx, i); err != nil {
			return err
		}
	}
	return r.addForgeClients(ctx)
}

// addNode starts a node, on PostgreSQL with a proxy between it and the database.
func (r *run) addNode(ctx context.Context, number int) error {
	store := "sqlite"
	if r.database != nil {
		p, err := newProxy(r.database.url.Host)
		if err != nil {
			return err
		}
		r.proxies = append(r.proxies, p)
		store = r.database.through(p.address())
	}
	n, err := newNode(number, r.plan, store)
	if err != nil {
		return err
	}
	r.nodes = append(r.nodes, n)
	return r.restart(ctx, n)
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
	(&relayLoad{run: r}).load(load, drained)
	(&taskflowLoad{run: r}).load(load, drained)
	(&forgeLoad{run: r}).load(load)
	if r.plan.hasObjects() {
		(&fetchLoad{run: r}).load(load)
		(&imagesLoad{run: r}).load(load)
	}
	(&operatorLoad{r}).load(load)
	defer r.actorsRunning.Wait()
	defer stopWorkers()
	err := disturb(load)
	if err != nil || r.plan.Points != "" {
		stopLoad()
	}
	if err != nil {
		return err
	}
	<-load.Done()
	for _, c := range r.forge {
		c.sink.behave()
	}
	return r.awaitDrained(ctx)
}

// awaitDrained waits until no job is left to be done. Jobs that are left in the end are violations,
// which the audit finds.
func (r *run) awaitDrained(ctx context.Context) error {
	db, err := r.openSQL()
	if err != nil {
		return err
	}
	defer db.Close()
	start := time.Now()
	for time.Since(start) < drainTimeout {
		n, err := unsettled(ctx, db)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	r.drained = time.Since(start)
	return nil
}

// read reads what is there by API, ends the nodes, and reads it by SQL.
func (r *run) read(ctx context.Context, ops []*op) (*final, error) {
	f, err := r.readAPI(ctx, ops)
	if err != nil {
		return nil, err
	}
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
	return f, readSQL(ctx, db, f, r.database == nil)
}

// close ends what is left of a run.
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
	for _, c := range r.forge {
		errs = append(errs, c.sink.server.Close())
	}
	if r.origin != nil {
		errs = append(errs, r.origin.server.Close(), r.origin.canary.server.Close())
	}
	if r.database != nil {
		errs = append(errs, r.database.drop())
	}
	return errors.Join(append(errs, r.disk.unmount())...)
}
