package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// idleSettings is what the command line says.
type idleSettings struct {
	dir, on          string
	queued           int
	nats             bool
	settle, duration time.Duration
	maxTime          time.Duration
}

const idleUsage = `usage: go run . idle [flags]

Measures what a server costs that has nothing to do: processor time, wake-ups, transactions on
PostgreSQL and memory. All contracts are served and all other settings are the defaults. With
-queued the server has that many jobs queued, and has had some of them claimed and completed before
it has nothing to do. With -nats it runs its NATS server, as after the first use of FetchBox or
Images.
`

func parseIdle(args []string, stderr io.Writer) (idleSettings, error) {
	var s idleSettings
	f := newFlags("idle", idleUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.on, "on", "", "only this `database`: sqlite or postgres")
	f.IntVar(&s.queued, "queued", 0, "`jobs` of Relay that are queued")
	f.BoolVar(&s.nats, "nats", false, "the server runs its NATS server")
	f.DurationVar(&s.settle, "settle", 20*time.Second, "time between the start and the first look")
	f.DurationVar(&s.duration, "time", time.Minute, "time between the two looks")
	f.DurationVar(&s.maxTime, "max-time", 15*time.Minute, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *idleSettings) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return errors.New("idle takes flags only")
	case s.queued < 0 || s.queued > maxJobs:
		return fmt.Errorf("-queued must be from 0 to %d", maxJobs)
	case s.settle < 0 || min(s.duration, s.maxTime) <= 0:
		return errors.New("-settle must be at least 0, -time and -max-time positive")
	}
	return checkDatabase(s.on)
}

// runIdle is the subcommand. It answers the exit code as run does.
func runIdle(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseIdle(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	return onDatabases(ctx, s.on, s.dir, 1, s.maxTime, stdout, stderr, s.run)
}

// usage is what a process has used since its start, and the memory that it has.
type usage struct {
	at           time.Time
	processor    time.Duration
	switches     int64 // that it made by itself, which is how often its threads have waited
	transactions int64 // of its database
	memory, own  int64 // resident bytes, and those of them that are no pages of files
}

// run measures on one database.
func (s *idleSettings) run(ctx context.Context, env *Env, onPostgres bool,
	stdout io.Writer) (err error) {
	transactions, flags := noTransactions, []string(nil)
	var pg *Postgres
	if onPostgres {
		if pg, err = env.Postgres(ctx, "idle"); err != nil {
			return err
		}
		flags = []string{"--set", "store=" + pg.URL()}
		transactions = pg.transactions
	}
	if s.nats {
		port, err := freePort()
		if err != nil {
			return err
		}
		flags = append(flags, "--set", fmt.Sprintf("stream.listen=127.0.0.1:%d", port))
	}
	folder, err := env.Folder("idle")
	if err != nil {
		return err
	}
	data := filepath.Join(folder, "data")
	if err := s.fill(ctx, pg, filepath.Join(data, "millrace.db")); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	binary, err := millrace.build(ctx)
	if err != nil {
		return err
	}
	server, err := serveMillrace(ctx, binary, data, env.Log, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(), os.RemoveAll(folder)) }()
	if _, err := claimAll(ctx, server.addr, "q", min(s.queued, backlogClaims)); err != nil {
		return err
	}
	read := func() (usage, error) {
		u, err := readUsage(server.cmd.Process.Pid)
		if err != nil {
			return u, err
		}
		u.transactions, err = transactions(ctx)
		return u, err
	}
	if err := sleep(ctx, s.settle); err != nil {
		return err
	}
	before, err := read()
	if err != nil {
		return err
	}
	if err := sleep(ctx, s.duration); err != nil {
		return err
	}
	after, err := read()
	if err != nil {
		return err
	}
	printIdle(stdout, before, after)
	return nil
}

// fill queues the jobs of -queued. Without PostgreSQL the database is the file.
func (s *idleSettings) fill(ctx context.Context, pg *Postgres, path string) error {
	if s.queued == 0 {
		return nil
	}
	opened, err := openStore(ctx, pg, path)
	if err != nil {
		return err
	}
	defer opened.Close()
	return fillRelay(ctx, opened, pg, path, "q", 0, s.queued)
}

func printIdle(stdout io.Writer, before, after usage) {
	seconds := after.at.Sub(before.at).Seconds()
	each := func(n int64) float64 { return float64(n) / seconds }
	const mega = 1e6
	fmt.Fprintf(stdout, "%.1f ms of processor time, %.0f switches and %.1f transactions a second; "+
		"%.1f MB resident, of it %.1f its own\n",
		each(int64(after.processor-before.processor))/float64(time.Millisecond),
		each(after.switches-before.switches), each(after.transactions-before.transactions),
		float64(after.memory)/mega, float64(after.own)/mega)
}

// readUsage reads what the kernel counts of a process and its threads.
func readUsage(pid int) (u usage, err error) {
	u.at = time.Now()
	dir := fmt.Sprintf("/proc/%d", pid)
	threads, err := filepath.Glob(dir + "/task/*")
	if err != nil {
		return u, err
	}
	for _, thread := range threads {
		ran, err := strconv.ParseInt(firstWord(thread+"/schedstat"), 10, 64)
		if err != nil {
			return u, err
		}
		u.processor += time.Duration(ran)
		u.switches += procNumber(thread+"/status", "\nvoluntary_ctxt_switches:")
	}
	const kilo = 1 << 10
	u.memory = procNumber(dir+"/status", "VmRSS:") * kilo
	u.own = procNumber(dir+"/status", "RssAnon:") * kilo
	if u.memory == 0 {
		return u, fmt.Errorf("%s has no memory", dir)
	}
	return u, nil
}

func noTransactions(context.Context) (int64, error) { return 0, nil }

// transactions counts those of the database. It makes two itself, which count the next time.
func (p *Postgres) transactions(ctx context.Context) (n int64, err error) {
	pool, err := p.Pool(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	err = pool.QueryRow(ctx, "SELECT xact_commit+xact_rollback FROM pg_stat_database "+
		"WHERE datname=current_database()").Scan(&n)
	return n, err
}
