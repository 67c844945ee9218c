package main

import (
	"cmp"
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
	Wait     time.Duration // for what is left after the load; see drain
	Postgres string        // URL of a server on which databases may be made
	Only     string        // the one kind of fault; "" for all
	Mode     string        // the one mode of the fault that Only names; "" for all
	Binary   string        // "" builds it
	Older    string        // a server of another version, see older.go; "" for none
	Bug      string        // seeded into the server; "" for none
	Points   string        // crash points, with commas between them, or all; "" for none
	Rounds   int           // of all these points, or kills of a recovery
	Recovery int           // jobs that are queued while recoveries are measured; 0 for a load
	Pooled   bool          // a PgBouncer is between the nodes and PostgreSQL
	S3       string        // a versitygw, for FetchBox and Images on several nodes
	Batch    int           // jobs of a batch; 0 for no actors that send batches
	Rate     int           // requests a second while there is load, at most; 0 for no bound
	Pause    time.Duration // between two faults, on average
	Dir      string        // of ledger, logs and data; "" for a temporary one, removed after a good run
}

// hasObjects reports whether there is load on FetchBox and Images. Nodes that share a database need
// shared objects and streams for them.
func (p *plan) hasObjects() bool { return p.Nodes == 1 || p.S3 != "" }

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
	"taskflow.lease=2s", "taskflow.max_concurrent=2000", "forgerun.duration_scale=0.05",
	"forgerun.lease=2s", "forgerun.heartbeat=500ms", "forgerun.rate_limit_per_minute=100000",
	"forgerun.max_active_jobs=100000", "forgerun.backoff_base=100ms", "webhook.timeout=1s",
	"webhook.max_tries=100", "webhook.backoff_base=50ms", "webhook.backoff_max=500ms",
	"fetchbox.lease=2s", "fetchbox.tries=8", "fetchbox.max_lost_runs=1000",
	"fetchbox.backoff_base=50ms", "images.lock_timeout=2s", "images.max_attempts=100",
	"images.backoff_base=50ms", "images.backoff_max=500ms", "images.workers=1",
	"images.sizes=16,48", "operator.token=" + operatorToken, "prune_interval=1s"}

// lease is the lease of most jobs.
const lease = 2 * time.Second

// readPlan reads the flags. A seed that is not given is drawn here, so that it can be printed.
func readPlan(args []string, output io.Writer) (p plan, prove bool, err error) {
	f := flag.NewFlagSet("torture", flag.ContinueOnError)
	f.SetOutput(output)
	f.Uint64Var(&p.Seed, "seed", 0, "seed of schedule and load; 0 draws one")
	f.StringVar(&p.Store, "store", "sqlite", "sqlite or postgres")
	f.IntVar(&p.Nodes, "nodes", 1, "nodes; several need postgres")
	f.DurationVar(&p.Load, "load", 20*time.Second, "how long there is load and faults")
	f.DurationVar(&p.Wait, "wait", drainTimeout,
		"how long nothing may end after the faults while something is left")
	f.StringVar(&p.Postgres, "postgres", defaultPostgres,
		"a PostgreSQL on which databases are made and dropped")
	f.StringVar(&p.Only, "only", "", "one kind of fault: "+strings.Join(allFaults(), ", "))
	f.StringVar(&p.Mode, "mode", "", "one mode of a fault that has several, such as "+
		strings.Join(modes, ", "))
	f.StringVar(&p.Binary, "binary", "", "the server; it is built where it is not given")
	f.StringVar(&p.Older, "older", "",
		"an older server: of two nodes each start is of the other version than the one before")
	f.StringVar(&p.Bug, "bug", "", "a seeded bug, a file of bugs/")
	f.StringVar(&p.Points, "points", "",
		"crash points in place of other faults, with commas between them, or all")
	f.IntVar(&p.Rounds, "rounds", 1,
		"how often the server dies at each crash point, or while -recovery jobs are queued")
	f.IntVar(&p.Recovery, "recovery", 0,
		"measure how nodes recover from kills while so many jobs are queued, in place of a load")
	f.StringVar(&p.S3, "s3", "",
		"the program versitygw: an S3 server, with which several nodes have FetchBox and Images")
	f.BoolVar(&p.Pooled, "pgbouncer", false, "a PgBouncer between the nodes and PostgreSQL")
	f.IntVar(&p.Batch, "batch", 0, "load with batches of so many jobs as well, up to 250")
	f.IntVar(&p.Rate, "rate", 0,
		"requests a second of the load, at most, so that a long run can be audited; 0 is no bound")
	f.DurationVar(&p.Pause, "pause", meanPause, "how long there is no fault, on average")
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
	case p.Mode != "" && !slices.Contains(modesOf(p.Only), p.Mode):
		return fmt.Errorf("-only %s has the modes %q, and not %q", p.Only, modesOf(p.Only), p.Mode)
	case isOfServices(p.Only) && p.S3 == "":
		return fmt.Errorf("%s harms what nodes share by -s3", p.Only)
	case p.Pooled && (p.Store == "sqlite" || isFailover(p.Only)):
		return errors.New("PgBouncer is before one PostgreSQL server")
	case p.Only == faultPooler && !p.Pooled:
		return errors.New("PgBouncer fails where -pgbouncer has one")
	case p.Older != "" && (p.Nodes < 2 || p.Points != "" || p.Recovery > 0):
		return errors.New("an older server is beside another node of a load")
	case p.Bug != "" && p.Binary != "":
		return errors.New("a seeded bug needs a server that is built")
	case p.Points != "" && (p.Only != "" || p.Nodes > 1 || p.Rounds < 1):
		return errors.New("crash points come without other faults, on one node")
	case p.Recovery < 0 || p.Rounds < 1 || (p.Recovery > 0 && (p.Only != "" || p.Points != "")):
		return errors.New("recoveries come in rounds, without faults that are chosen")
	case p.Batch < 0 || p.Batch > maxBatch || p.Pause <= 0 || p.Rate < 0:
		return fmt.Errorf("a batch has 1 to %d jobs, a pause takes time, a rate is no less than 0", maxBatch)
	case p.Points != "":
		_, err := p.selectPoints()
		return err
	}
	return nil
}

// maxBatch is how many jobs of a batch can be claimed threefold, and ended, in one request.
const maxBatch = 250

// again is the command that repeats a run. It names each flag that differs from what the flag is
// without being named.
func (p *plan) again() string {
	text := fmt.Sprintf("go run ./torture -seed %d -store %s -nodes %d -load %s", p.Seed, p.Store,
		p.Nodes, p.Load)
	for _, f := range []struct {
		name     string
		value    any
		standard any
	}{
		{"wait", p.Wait, drainTimeout},
		{"postgres", p.Postgres, defaultPostgres},
		{"only", p.Only, ""},
		{"mode", p.Mode, ""},
		{"bug", p.Bug, ""},
		{"points", p.Points, ""},
		{"recovery", p.Recovery, 0},
		{"rounds", p.Rounds, 1},
		{"s3", p.S3, ""},
		{"pgbouncer", p.Pooled, false},
		{"older", p.Older, ""},
		{"batch", p.Batch, 0},
		{"rate", p.Rate, 0},
		{"pause", p.Pause, meanPause},
	} {
		if f.value == true {
			text += " -" + f.name
		} else if f.value != f.standard {
			text += fmt.Sprintf(" -%s %s", f.name, quoteForShell(fmt.Sprint(f.value)))
		}
	}
	return text
}

// quoteForShell quotes a text that a shell would not take as it is, such as a URL.
func quoteForShell(text string) string {
	if !strings.ContainsAny(text, " ?&;*'\"$()") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// defaultPostgres is a server of this machine that asks for no password.
const defaultPostgres = "postgres://root@127.0.0.1:5432/test?sslmode=disable"

// fault is one thing that the nemesis does, at a time after the load has started.
type fault struct {
	At     time.Duration
	Kind   string
	Node   int
	Length time.Duration
	Point  string // of a crash
	Mode   string // of a kind that has several
	Hit    int    // how often the node comes to the point, the last time to die
}

// String is a line of the printed schedule.
func (f fault) String() string {
	if f.Mode != "" {
		return fmt.Sprintf("%6.2fs %s, %s for %.2fs", f.At.Seconds(), f.Kind, f.Mode,
			f.Length.Seconds())
	}
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
	faultStall     = "stall"     // the connections to the database swallow all that is sent
	faultDiskFull  = "disk-full" // the data directory has no space left
	faultCrash     = "crash"     // at a crash point
	faultPowerCut  = "power-cut" // the device as it was synced, after a loss of power

	faultReadOnlyDisk = "read-only-disk" // the file system refuses all writes

	faultSyncError  = "sync-error"  // fsync fails
	faultWriteError = "write-error" // writes of the database fail
	faultSlowDisk   = "slow-disk"   // fsync takes long
	faultReadOnly   = "read-only"   // the database refuses writes
	faultRestart    = "restart"     // the PostgreSQL server is started again
	faultExhaust    = "exhaust"     // all connections of the PostgreSQL server are taken

	faultFailover      = "failover"       // the primary is lost, its synchronous standby promoted
	faultFailoverAsync = "failover-async" // the same with an asynchronous one, which may lack some

	faultPatroni      = "patroni"       // the primary of three servers that Patroni keeps is lost
	faultPatroniAsync = "patroni-async" // the same with asynchronous standbys

	faultPooler       = "pgbouncer"     // the PgBouncer before the server fails
	faultS3           = "s3"            // the S3 server that the nodes share fails
	faultStreams      = "streams"       // the NATS server that the nodes share fails
	faultStreamsWiped = "streams-wiped" // it loses its streams or their consumers
	faultMessages     = "messages"      // single messages come twice, or to nobody
)

// meanPause is how long there is no fault, on average, where no flag says otherwise.
const meanPause = 1500 * time.Millisecond

// allFaults returns the kinds of faults of both stores, those they share once.
func allFaults() (all []string) {
	for _, kind := range slices.Concat(faultsOf["sqlite"], faultsOf["postgres"]) {
		if !slices.Contains(all, kind) {
			all = append(all, kind)
		}
	}
	return all
}

// namedFaults are drawn where they are named with -only alone: they need a mount, a debugger or
// servers of their own, or are rare.
var namedFaults = []string{faultDiskFull, faultReadOnlyDisk, faultPowerCut, faultSyncError,
	faultWriteError, faultSlowDisk, faultReadOnly, faultRestart, faultExhaust, faultFailover,
	faultFailoverAsync, faultPatroni, faultPatroniAsync, faultPooler, faultS3, faultStreams,
	faultStreamsWiped, faultMessages}

// serverFaults need a PostgreSQL server of the run's own.
var serverFaults = []string{faultPowerCut, faultRestart, faultExhaust}

// faultsOf are the faults of each store.
var faultsOf = map[string][]string{
	"sqlite": {faultKill, faultTerminate, faultFreeze, faultPowerCut, faultDiskFull,
		faultReadOnlyDisk, faultSyncError, faultWriteError, faultSlowDisk, faultS3, faultStreams,
		faultStreamsWiped, faultMessages},
	"postgres": {faultKill, faultTerminate, faultFreeze, faultPowerCut, faultBackends,
		faultRefuse, faultReset, faultStall, faultReadOnly, faultRestart, faultExhaust,
		faultFailover, faultFailoverAsync, faultPatroni, faultPatroniAsync, faultPooler, faultS3,
		faultStreams, faultStreamsWiped, faultMessages},
}

// modesOf returns the modes of a kind of fault; nil for one that has no choice.
func modesOf(kind string) []string {
	switch {
	case isPatroni(kind):
		return patroniModes
	case isFailover(kind):
		return modes
	case kind == faultRestart:
		return restarts
	case kind == faultPooler:
		return poolerModes
	}
	return serviceModes[kind]
}

// kinds returns the kinds of faults that a plan may have. Beside an older server they are those by
// which nodes are replaced.
func (p *plan) kinds() []string {
	if p.Older != "" {
		return []string{faultKill, faultTerminate}
	}
	return faultsOf[p.Store]
}

// schedule returns the faults of a plan. They do not overlap. Kills are as frequent as all others
// together.
func (p *plan) schedule() (all []fault) {
	if p.Points != "" {
		return p.crashes()
	}
	r := rand.New(rand.NewPCG(p.Seed, 0))
	kinds := slices.DeleteFunc(slices.Clone(p.kinds()), func(kind string) bool {
		return slices.Contains(namedFaults, kind)
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
		if len(modesOf(f.Kind)) > 0 {
			f.Mode = cmp.Or(p.Mode, drawMode(f.Kind, r))
		}
		all = append(all, f)
		at += f.Length + time.Duration(float64(p.Pause)*min(3, r.ExpFloat64()))
	}
	return all
}

// lengthOf draws how long a fault lasts.
func lengthOf(kind string, r *rand.Rand) time.Duration {
	upTo := func(from, to time.Duration) time.Duration {
		return from + time.Duration(r.Int64N(int64(to-from)))
	}
	switch kind {
	case faultKill, faultTerminate, faultPowerCut, faultRestart:
		return upTo(0, 500*time.Millisecond)
	case faultFailover, faultFailoverAsync, faultPatroni, faultPatroniAsync:
		return upTo(200*time.Millisecond, 1500*time.Millisecond)
	case faultFreeze:
		return upTo(lease/2, 2*lease)
	}
	return upTo(500*time.Millisecond, 3*time.Second)
}
