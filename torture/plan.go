package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is what a run does. Its faults follow from the seed and the rest of the plan, and so do the
// choices of all actors; when exactly a request meets a fault does not.
type plan struct {
	Seed     uint64
	Store    string // sqlite or postgres
	Nodes    int
	Load     time.Duration
	Postgres string // URL of a server on which databases may be made
	Only     string // the one kind of fault; "" for all
	Binary   string // "" builds it
	Bug      string // seeded into the server; "" for none
	Points   string // crash points, with commas between them, or all; "" for none
	Rounds   int    // of all these points
	Dir      string // of ledger, logs and data; "" for a temporary one, removed after a good run
}

// hasObjects reports whether there is load on FetchBox and Images. Nodes that share a database need
// a shared storage of objects for them, which there is none of here.
func (p *plan) hasObjects() bool { return p.Nodes == 1 }

// contracts are those that the nodes serve.
func (p *plan) contracts() string {
	all := []string{relay, taskflow, forgerun}
	if p.hasObjects() {
		all = append(all, fetchbox, images)
	}
	return strings.Join(all, ",")
}

// loadSettings are settings of the server: leases are short, so that they end while it is loaded.
var loadSettings = []string{"shutdown_grace=3s",
	"taskflow.lease=2s", "taskflow.max_concurrent=200", "forgerun.duration_scale=0.05",
	"forgerun.lease=2s", "forgerun.heartbeat=500ms", "forgerun.rate_limit_per_minute=100000",
	"forgerun.max_active_jobs=100000", "forgerun.backoff_base=100ms", "webhook.timeout=1s",
	"webhook.max_tries=100", "webhook.backoff_base=50ms", "webhook.backoff_max=500ms",
	"fetchbox.lease=2s", "fetchbox.tries=8", "fetchbox.max_lost_runs=1000",
	"fetchbox.backoff_base=50ms", "images.lock_timeout=2s", "images.max_attempts=100",
	"images.backoff_base=50ms", "images.backoff_max=500ms", "images.workers=1",
	"images.sizes=16,48", "operator.token=" + operatorToken, "prune_interval=1s"}

// lease is that of most jobs.
const lease = 2 * time.Second

// readPlan reads the flags. A seed that is not given is drawn here, so that it can be printed.
func readPlan(args []string, output io.Writer) (p plan, prove bool, err error) {
	f := flag.NewFlagSet("torture", flag.ContinueOnError)
	f.SetOutput(output)
	f.Uint64Var(&p.Seed, "seed", 0, "seed of schedule and load; 0 draws one")
	f.StringVar(&p.Store, "store", "sqlite", "sqlite or postgres")
	f.IntVar(&p.Nodes, "nodes", 1, "nodes; several need postgres")
	f.DurationVar(&p.Load, "load", 20*time.Second, "how long there is load and faults")
	f.StringVar(&p.Postgres, "postgres", "postgres://root@127.0.0.1:5432/test?sslmode=disable",
		"a PostgreSQL on which databases are made and dropped")
	f.StringVar(&p.Only, "only", "", "one kind of fault: "+strings.Join(allFaults(), ", "))
	f.StringVar(&p.Binary, "binary", "", "the server; it is built where it is not given")
	f.StringVar(&p.Bug, "bug", "", "a seeded bug, a file of bugs/")
	f.StringVar(&p.Points, "points", "",
		"crash points in place of other faults, with commas between them, or all")
	f.IntVar(&p.Rounds, "rounds", 1, "how often the server dies at each crash point")
	f.StringVar(&p.Dir, "dir", "", "where ledger, logs and data stay")
	f.BoolVar(&prove, "prove", false, "run every seeded bug until it is caught")
	if err := f.Parse(args); err != nil {
		return p, false, err
	}
	if p.Seed == 0 {
		p.Seed = rand.Uint64N(1_000_000)
	}
	return p, prove, p.check()
}

// check refuses plans that cannot be carried out.
func (p *plan) check() error {
	switch {
	case p.Store != "sqlite" && p.Store != "postgres":
		return fmt.Errorf("there is no store %q", p.Store)
	case p.Nodes < 1 || (p.Nodes > 1 && p.Store == "sqlite"):
		return errors.New("SQLite has one node, PostgreSQL one or more")
	case p.Only != "" && !slices.Contains(p.kinds(), p.Only):
		return fmt.Errorf("%s has no fault %q", p.Store, p.Only)
	case p.Bug != "" && p.Binary != "":
		return errors.New("a seeded bug needs a server that is built")
	case p.Points != "" && (p.Only != "" || p.Nodes > 1 || p.Rounds < 1):
		return errors.New("crash points come without other faults, on one node")
	case p.Points != "":
		_, err := p.selectPoints()
		return err
	}
	return nil
}

// again is the command that repeats a run.
func (p *plan) again() string {
	text := fmt.Sprintf("go run ./torture -seed %d -store %s -nodes %d -load %s", p.Seed, p.Store,
		p.Nodes, p.Load)
	for name, value := range map[string]string{"only": p.Only, "bug": p.Bug, "points": p.Points} {
		if value != "" {
			text += " -" + name + " " + value
		}
	}
	return text
}

// fault is one thing that the nemesis does, at a time after the load has begun.
type fault struct {
	At     time.Duration
	Kind   string
	Node   int
	Length time.Duration
	Point  string // of a crash
	Hit    int    // how often the node comes to the point, the last time to die
}

// String is a line of the printed schedule.
func (f fault) String() string {
	return fmt.Sprintf("%6.2fs %-12s node %d for %.2fs", f.At.Seconds(), f.Kind, f.Node,
		f.Length.Seconds())
}

// The kinds of faults.
const (
	faultKill      = "kill"      // SIGKILL, and started again after the length
	faultTerminate = "terminate" // SIGTERM under load, and started again
	faultFreeze    = "freeze"    // SIGSTOP, mostly longer than the lease
	faultBackends  = "backends"  // the sessions of the node are ended, again and again
	faultRefuse    = "refuse"    // the database allows no connections
	faultReset     = "reset"     // the connections to the database are reset
	faultStall     = "stall"     // the connections to the database swallow what is sent
	faultDiskFull  = "disk-full" // the data directory has no space left
	faultCrash     = "crash"     // at a crash point
	faultPowerCut  = "power-cut" // the device as it was synced, after a loss of power
)

// meanPause is how long there is no fault, on average.
const meanPause = 1500 * time.Millisecond

// allFaults returns the kinds of faults of both stores, those they share once.
func allFaults() []string {
	const shared = 3 // the first of both lists
	return append(slices.Clone(faultsOf["sqlite"]), faultsOf["postgres"][shared:]...)
}

// faultsOf are the faults of each store. Those that need a mount are drawn where they are named
// with -only alone.
var faultsOf = map[string][]string{
	"sqlite": {faultKill, faultTerminate, faultFreeze, faultDiskFull, faultPowerCut},
	"postgres": {faultKill, faultTerminate, faultFreeze, faultBackends, faultRefuse, faultReset,
		faultStall},
}

// kinds returns the kinds of faults that the store of a plan has.
func (p *plan) kinds() []string { return faultsOf[p.Store] }

// schedule returns the faults of a plan. They do not overlap. Kills are as frequent as all others
// together.
func (p *plan) schedule() (all []fault) {
	if p.Points != "" {
		return p.crashes()
	}
	r := rand.New(rand.NewPCG(p.Seed, 0))
	kinds := slices.DeleteFunc(slices.Clone(p.kinds()), func(kind string) bool {
		return kind == faultDiskFull || kind == faultPowerCut
	})
	at := 500 * time.Millisecond
	for at < p.Load {
		f := fault{At: at, Kind: faultKill, Node: r.IntN(p.Nodes)}
		if r.IntN(2) == 0 {
			f.Kind = kinds[r.IntN(len(kinds))]
		}
		if p.Only != "" {
			f.Kind = p.Only
		}
		f.Length = lengthOf(f.Kind, r)
		all = append(all, f)
		at += f.Length + time.Duration(float64(meanPause)*min(3, r.ExpFloat64()))
	}
	return all
}

// lengthOf draws how long a fault lasts.
func lengthOf(kind string, r *rand.Rand) time.Duration {
	upTo := func(from, to time.Duration) time.Duration {
		return from + time.Duration(r.Int64N(int64(to-from)))
	}
	switch kind {
	case faultKill, faultTerminate, faultPowerCut:
		return upTo(0, 500*time.Millisecond)
	case faultFreeze:
		return upTo(lease/2, 2*lease)
	}
	return upTo(500*time.Millisecond, 3*time.Second)
}
