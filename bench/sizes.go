package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// sizeSettings is what the command line says.
type sizeSettings struct {
	dir, on       string
	jobs, clients int
	maxTime       time.Duration
	chosen        []sizedContract
	stderr        io.Writer
}

const sizesUsage = `usage: go run . sizes [flags] [contract ...]   (no contract means all)

Takes jobs of each contract through a server of its own, with its workers, and prints the bytes that
one of them leaves: in the database while it is queued and when it is done, in the WAL of PostgreSQL
until then, in streams and objects; what the server wrote to the disk, and its largest memory. It
measures no time. PostgreSQL is a server of its own with its usual settings.
`

func parseSizes(args []string, stderr io.Writer) (sizeSettings, error) {
	s := sizeSettings{stderr: stderr}
	f := newFlags("sizes", sizesUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.on, "on", "", "only this `database`: sqlite or postgres")
	f.IntVar(&s.jobs, "n", 100_000, "jobs of a contract; of Images a hundredth")
	f.IntVar(&s.clients, "clients", 16, "connections")
	f.DurationVar(&s.maxTime, "max-time", 2*time.Hour, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *sizeSettings) check(names []string) error {
	for _, name := range names {
		at := slices.IndexFunc(sizedContracts, func(c sizedContract) bool { return c.name == name })
		if at < 0 {
			return fmt.Errorf("there is no contract %q", name)
		}
		s.chosen = append(s.chosen, sizedContracts[at])
	}
	if len(names) == 0 {
		s.chosen = sizedContracts
	}
	switch {
	case min(s.jobs, s.clients) < 1 || s.jobs > maxJobs:
		return fmt.Errorf("the numbers must be at least 1, and that of jobs at most %d", maxJobs)
	case s.maxTime <= 0:
		return errors.New("-max-time must be positive")
	}
	return checkDatabase(s.on)
}

// runSizes is the subcommand. It answers the exit code as run does.
func runSizes(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseSizes(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	return onDatabases(ctx, s.on, s.dir, s.clients, s.maxTime, stdout, stderr, s.run)
}

// run measures on one database.
func (s *sizeSettings) run(ctx context.Context, env *Env, onPostgres bool, stdout io.Writer) error {
	if onPostgres {
		var err error
		if env.Server, err = startPostgres(ctx, env); err != nil { // nobody else writes its WAL
			return err
		}
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "contract\tjobs\tqueued\tdone\tlog\tstreams\tobjects\tnode writes\tmemory\t")
	for _, c := range s.chosen {
		line, err := s.measure(ctx, env, onPostgres, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintln(table, line)
		fmt.Fprintf(s.stderr, "%s\n", strings.ReplaceAll(line, "\t", " "))
	}
	return table.Flush()
}

// sizeWorld is a server of one contract, and what is measured of it.
type sizeWorld struct {
	*adminWorld
	conns   int
	written int64 // bytes that the servers before this one wrote to the disk
	memory  int64 // the most that one of them had resident
}

// storedBytes is what there is of a store.
type storedBytes struct{ database, log, streams, objects int64 }

// measure takes jobs of a contract through and returns the line about them.
func (s *sizeSettings) measure(ctx context.Context, env *Env, onPostgres bool,
	c sizedContract) (_ string, err error) {
	w := &sizeWorld{adminWorld: &adminWorld{http: &http.Client{Transport: &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}, conns: s.clients}
	if w.relayQueue, err = newRelayQueue(ctx, env, onPostgres); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.clear(ctx); err != nil {
		return "", err
	}
	n := max(1, s.jobs/max(1, c.divide))
	load, err := c.load(w, n)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, load.Close()) }()
	settings := slices.Concat(worldFlags[1:], []string{"--set", "contracts=" + c.name}, c.flags,
		load.Flags())
	queueing := append([]string{"--no-workers"}, settings...)
	empty, err := w.during(ctx, queueing, func() error { return nil })
	if err != nil {
		return "", err
	}
	w.written = 0
	queued, err := w.during(ctx, queueing, func() error { return load.Submit(ctx) })
	if err != nil {
		return "", fmt.Errorf("submit: %w", err)
	}
	done, err := w.during(ctx, settings, func() error {
		return errors.Join(load.Work(ctx), w.awaitEnd(ctx))
	})
	if err != nil {
		return "", fmt.Errorf("work: %w", err)
	}
	each := func(bytes int64) int64 { return bytes / int64(n) }
	log := "-"
	if onPostgres {
		log = fmt.Sprint(each(done.log - empty.log))
	}
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d MB\t", c.name, n,
		each(queued.database-empty.database), each(done.database-empty.database), log,
		each(done.streams-empty.streams), each(done.objects-empty.objects), each(w.written),
		w.memory>>20), nil
}

// during runs a server with flags, and returns what is stored after it has stopped.
func (w *sizeWorld) during(ctx context.Context, flags []string,
	use func() error) (stored storedBytes, err error) {
	w.flags = flags
	if err := w.start(ctx); err != nil {
		return stored, err
	}
	if err := use(); err != nil {
		return stored, errors.Join(err, w.relayQueue.Close())
	}
	pid := w.servers[0].cmd.Process.Pid
	w.written += procNumber(fmt.Sprintf("/proc/%d/io", pid), "write_bytes:")
	w.memory = max(w.memory, procNumber(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")<<10)
	if err := w.relayQueue.Close(); err != nil {
		return stored, err
	}
	return w.stored(ctx)
}

// awaitEnd waits until no job of any contract waits, is ready or runs.
func (w *sizeWorld) awaitEnd(ctx context.Context) error {
	return w.await(ctx, func() (bool, error) {
		var counts struct {
			Items []struct {
				Phase string
				Count int
			}
		}
		if err := w.admin(ctx, "GET", "/admin/v1/counts?by=phase", "", &counts); err != nil {
			return false, err
		}
		for _, c := range counts.Items {
			if c.Phase == "dead" && c.Count > 0 {
				return false, fmt.Errorf("%d jobs were given up", c.Count)
			}
			if c.Phase != "done" && c.Count > 0 {
				return false, nil
			}
		}
		return len(counts.Items) > 0, nil
	})
}

// stored reads what a stopped server has left. Pages of the database that are free count as none.
func (w *sizeWorld) stored(ctx context.Context) (b storedBytes, err error) {
	if w.pg == nil {
		b.database, err = usedBytesOfSQLite(ctx, filepath.Join(w.data(0), "millrace.db"))
	} else {
		b.database, b.log, err = usedBytesOfPostgres(ctx, w.pg)
	}
	if err != nil {
		return b, err
	}
	if b.streams, err = bytesOfFolder(filepath.Join(w.data(0), "streams")); err != nil {
		return b, err
	}
	b.objects, err = bytesOfFolder(filepath.Join(w.data(0), "objects"))
	return b, err
}

// usedBytesOfPostgres reads the size of the database and the position in the WAL.
func usedBytesOfPostgres(ctx context.Context, pg *Postgres) (database, log int64, err error) {
	pool, err := pg.Pool(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	if log, err = walPosition(ctx, pool); err != nil {
		return 0, 0, err
	}
	if _, err := pool.Exec(ctx, "VACUUM"); err != nil { // as autovacuum does sooner or later
		return 0, 0, err
	}
	err = pool.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&database)
	return database, log, err
}

// walPosition is how many bytes a server has written into its WAL since it was made.
func walPosition(ctx context.Context, pool *pgxpool.Pool) (position int64, err error) {
	err = pool.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn()-'0/0'::pg_lsn)::bigint").Scan(
		&position)
	return position, err
}

// usedBytesOfSQLite is the size of a database without its free pages.
func usedBytesOfSQLite(ctx context.Context, path string) (int64, error) {
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: path}).String())
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var size int64
	err = db.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&size)
	return size, err
}

// bytesOfFolder adds up the space that the files of a folder take on the disk; one that is missing
// has none.
func bytesOfFolder(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		total += (info.Size() + 4095) &^ 4095
		return nil
	})
	return total, err
}

// procNumber is the number behind a word in a file of /proc, 0 without it.
func procNumber(path, word string) (n int64) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(textAfter(string(text), word), &n)
	return n
}
