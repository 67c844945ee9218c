package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// nodesSettings is what the command line says.
type nodesSettings struct {
	dir, counts   string
	nodes         []int
	jobs, clients int
	rounds        int
	contracts     bool
	maxTime       time.Duration
	stderr        io.Writer
}

const nodesUsage = `usage: go run . nodes [flags]

Takes jobs through Relay on 1, 2 and 4 nodes of one PostgreSQL, by turns, one by one and in batches
of 100, once more through PgBouncer in transaction mode, and on two nodes with a PostgreSQL each, as
where clients choose a deployment by the queue. It prints the rates, and what does not hang on how
many processors there are: the processor time that a job costs the nodes and the databases, and the
bytes of its WAL. Each PostgreSQL is a server of its own with its usual settings.

With -contracts it takes jobs through Relay on one node and through TaskFlow on another at the same
time instead, on one PostgreSQL and with one each, as where deployments divide contracts.
`

func parseNodes(args []string, stderr io.Writer) (nodesSettings, error) {
	s := nodesSettings{stderr: stderr}
	f := newFlags("nodes", nodesUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.counts, "nodes", "1,2,4", "how many nodes, in their order")
	f.IntVar(&s.jobs, "n", 20_000, "jobs of a measurement; in batches five times as many")
	f.IntVar(&s.clients, "clients", 64, "connections")
	f.IntVar(&s.rounds, "rounds", 3, "measurements of a line, of which the median is printed")
	f.BoolVar(&s.contracts, "contracts", false, "measure Relay beside TaskFlow instead")
	f.DurationVar(&s.maxTime, "max-time", 15*time.Minute, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *nodesSettings) check(rest []string) error {
	if len(rest) > 0 {
		return errors.New("nodes takes flags only")
	}
	for text := range strings.SplitSeq(s.counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 16 {
			return fmt.Errorf("-nodes has %q, want numbers from 1 to 16", text)
		}
		s.nodes = append(s.nodes, n)
	}
	switch {
	case min(s.jobs, s.clients, s.rounds) < 1 || s.jobs > maxJobs:
		return fmt.Errorf("the numbers must be at least 1, and that of jobs at most %d", maxJobs)
	case s.maxTime <= 0:
		return errors.New("-max-time must be positive")
	}
	return nil
}

// runNodes is the subcommand. It answers the exit code as run does.
func runNodes(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseNodes(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	err = s.runWithinTime(ctx, stdout, stderr)
	switch {
	case isSkip(err):
		fmt.Fprintf(stdout, "skipped: %v\n", err)
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// runWithinTime measures, and ends what it has started after the longest time.
func (s *nodesSettings) runWithinTime(ctx context.Context, stdout, stderr io.Writer) error {
	env, err := newEnv(s.dir, s.clients, Tuning{}, stderr)
	if err != nil {
		return err
	}
	return withinTime(ctx, env, s.maxTime, func(ctx context.Context) error {
		return s.run(ctx, env, stdout)
	})
}

// nodesCase is a line of the table.
type nodesCase struct {
	nodes  int // on each of the stores
	stores int
	batch  int
	pooled bool
	flags  []string // of the nodes
	runs   []nodesRun
}

// name is what the line is about.
func (c *nodesCase) name() string {
	switch {
	case c.pooled:
		return fmt.Sprint(c.nodes, " behind PgBouncer")
	case c.stores > 1:
		return fmt.Sprint(c.nodes*c.stores, " with a PostgreSQL each")
	default:
		return strconv.Itoa(c.nodes)
	}
}

// nodesRun is one measurement of it.
type nodesRun struct {
	rate                       float64 // jobs a second
	ofNodes, ofDatabase, ofWAL float64 // a job: µs of processor time, and bytes
}

// median is the median of a figure over the runs.
func (c *nodesCase) median(figure func(nodesRun) float64) float64 {
	var values []float64
	for _, r := range c.runs {
		values = append(values, figure(r))
	}
	return median(values)
}

// cases are the lines, in their order.
func (s *nodesSettings) cases(pooler bool) (all []*nodesCase) {
	for _, batch := range []int{1, sizedBatch} {
		for _, n := range s.nodes {
			all = append(all, &nodesCase{nodes: n, stores: 1, batch: batch})
		}
		if pooler {
			all = append(all, &nodesCase{nodes: s.nodes[0], stores: 1, batch: batch, pooled: true})
		}
		all = append(all, &nodesCase{nodes: 1, stores: 2, batch: batch})
	}
	return all
}

// run measures the lines by turns.
func (s *nodesSettings) run(ctx context.Context, env *Env, stdout io.Writer) error {
	fmt.Fprintln(stdout, inspectMachine(env.Dir))
	other, err := newEnv(env.Dir, env.Clients, env.Tuning, env.Log)
	if err != nil {
		return err
	}
	return withinTime(ctx, other, s.maxTime, func(ctx context.Context) error {
		w, err := newNodesWorld(ctx, env, other)
		if err != nil {
			return err
		}
		if s.contracts {
			return s.runContracts(ctx, w, stdout)
		}
		cases := s.cases(w.pooler != "")
		if _, err := w.measure(ctx, cases[0], s.jobs); err != nil { // a first one that does not count
			return err
		}
		for round := range s.rounds {
			for _, c := range cases {
				r, err := w.measure(ctx, c, s.jobs)
				if err != nil {
					return err
				}
				c.runs = append(c.runs, r)
				fmt.Fprintf(s.stderr, "round %d/%d: nodes %s, batches of %d: %.0f jobs/s\n", round+1,
					s.rounds, c.name(), c.batch, r.rate)
			}
		}
		return printNodes(stdout, cases)
	})
}

func printNodes(stdout io.Writer, cases []*nodesCase) error {
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "nodes\tbatch\tjobs/s\tnodes, µs a job\tPostgreSQL, µs a job\tWAL, bytes a job\t")
	for _, c := range cases {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t\n", c.name(), c.batch,
			c.median(func(r nodesRun) float64 { return r.rate }),
			c.median(func(r nodesRun) float64 { return r.ofNodes }),
			c.median(func(r nodesRun) float64 { return r.ofDatabase }),
			c.median(func(r nodesRun) float64 { return r.ofWAL }))
	}
	return t.Flush()
}

// nodesWorld is two PostgreSQL of their own, and a pooler before the first.
type nodesWorld struct {
	stores  []*nodesStore
	clients int
	pooler  string // the address of PgBouncer, empty where it is not installed
}

// nodesStore is a PostgreSQL and the nodes on it.
type nodesStore struct {
	*relayQueue
	database int // the process of the server
}

func newNodesWorld(ctx context.Context, envs ...*Env) (w *nodesWorld, err error) {
	w = &nodesWorld{clients: envs[0].Clients}
	for _, env := range envs {
		if env.Server, err = startPostgres(ctx, env); err != nil {
			return nil, err
		}
		s := &nodesStore{database: env.children[0].cmd.Process.Pid}
		if s.relayQueue, err = newRelayQueue(ctx, env, true); err != nil {
			return nil, err
		}
		w.stores = append(w.stores, s)
	}
	w.pooler, err = startPgBouncer(ctx, envs[0], w.stores[0].pg)
	if isSkip(err) {
		fmt.Fprintln(envs[0].Log, err)
		err = nil
	}
	return w, err
}

// startPgBouncer runs a pooler in transaction mode before a database and answers its address.
func startPgBouncer(ctx context.Context, env *Env, pg *Postgres) (addr string, err error) {
	program, err := findProgram("pgbouncer", "apt-get install pgbouncer")
	if err != nil {
		return "", err
	}
	dir, err := env.Folder("pgbouncer")
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	_, addr, err = startPeer(ctx, env, "pgbouncer", func(port int) *exec.Cmd {
		text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\n"+
			"listen_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\n"+
			"pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\n",
			pg.dsn.ConnConfig.Port, port)
		_ = os.WriteFile(config, []byte(text), 0o644) // without it the program says what is missing
		_ = giveToPostgres(env.Dir, dir)
		return asPostgres(program, "-q", config)
	}, func(ctx context.Context, addr string) error {
		c, err := dialRaw(ctx, addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return addr, err
}

// measure takes jobs through the nodes of a line, on empty databases.
func (w *nodesWorld) measure(ctx context.Context, c *nodesCase, n int) (r nodesRun, err error) {
	if c.batch > 1 {
		n *= 5
	}
	var took time.Duration
	r, err = w.during(ctx, c, n, func(stores []*nodesStore) (err error) {
		took, err = w.load(ctx, stores, c, n)
		return err
	})
	r.rate = float64(n) / took.Seconds()
	return r, err
}

// during starts the nodes of a line on empty databases for a load of n jobs, and returns what a job
// has cost.
func (w *nodesWorld) during(ctx context.Context, c *nodesCase, n int,
	load func([]*nodesStore) error) (r nodesRun, err error) {
	stores := w.stores[:c.stores]
	for _, s := range stores {
		if err := s.prepare(ctx, c, w.pooler); err != nil {
			return r, err
		}
	}
	before, err := spent(ctx, stores)
	if err != nil {
		return r, err
	}
	if err := load(stores); err != nil {
		return r, err
	}
	after, err := spent(ctx, stores)
	if err != nil {
		return r, err
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			return r, err
		}
	}
	each := func(spent, before float64) float64 { return (spent - before) / float64(n) }
	return nodesRun{ofNodes: each(after.ofNodes, before.ofNodes),
		ofDatabase: each(after.ofDatabase, before.ofDatabase),
		ofWAL:      each(after.ofWAL, before.ofWAL)}, nil
}

// prepare starts the nodes of a line on an empty database.
func (s *nodesStore) prepare(ctx context.Context, c *nodesCase, pooler string) error {
	s.nodes, s.batch, s.whole, s.store, s.flags = c.nodes, c.batch, c.batch > 1, "", c.flags
	if c.pooled {
		s.store = "postgres://postgres@" + pooler + "/" + s.pg.name + "?sslmode=disable"
	}
	return s.Reset(ctx)
}

// load takes jobs through all stores at the same time, by equal parts of the connections. It
// returns the time of the slowest.
func (w *nodesWorld) load(ctx context.Context, stores []*nodesStore, c *nodesCase,
	n int) (took time.Duration, err error) {
	parts := len(stores)
	times := make([]time.Duration, parts)
	_, err = runParallel(ctx, parts, parts, func(ctx context.Context, _, i int) error {
		runner := &queueRunner{queueSystem: stores[i].relayQueue, conns: max(w.clients/parts, 1),
			batch: c.batch}
		phases, err := runner.load(ctx, n/parts)
		if err != nil {
			return err
		}
		times[i] = phases[len(phases)-1].Took
		return nil
	})
	return slices.Max(times), err
}

// spent is what nodes and databases have used until now.
func spent(ctx context.Context, stores []*nodesStore) (r nodesRun, err error) {
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	for _, store := range stores {
		for _, s := range store.servers {
			used, err := processorTime(s.cmd.Process.Pid)
			if err != nil {
				return r, err
			}
			r.ofNodes += micros(used)
		}
		used, err := familyTime(store.database)
		if err != nil {
			return r, err
		}
		r.ofDatabase += micros(used)
		pool, err := store.pg.Pool(ctx, 1)
		if err != nil {
			return r, err
		}
		position, err := walPosition(ctx, pool)
		pool.Close()
		if err != nil {
			return r, err
		}
		r.ofWAL += float64(position)
	}
	return r, nil
}
