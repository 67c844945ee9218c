package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// startPostgres runs a PostgreSQL of its own in the folder of the bench, with its usual settings:
// autovacuum is on, whatever a server that is there has. It answers the server's DSN.
func startPostgres(ctx context.Context, env *Env) (dsn string, err error) {
	initdb, err := postgresProgram("initdb")
	if err != nil {
		return "", err
	}
	program, err := postgresProgram("postgres")
	if err != nil {
		return "", err
	}
	dir, err := env.Folder("postgres")
	if err != nil {
		return "", err
	}
	if err := giveToPostgres(env.Dir, dir); err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	create := asPostgres(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	if out, err := create.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, singleLine(string(out)))
	}
	at := func(addr string) string {
		return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	}
	_, addr, err := startPeer(ctx, env, "postgres", func(port int) *exec.Cmd {
		return asPostgres(program, "-D", data, "-p", strconv.Itoa(port), "-k", dir, "-c",
			"listen_addresses=127.0.0.1")
	}, func(ctx context.Context, addr string) error {
		conn, err := pgx.Connect(ctx, at(addr))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
	return at(addr), err
}

// postgresProgram finds a program of PostgreSQL in PATH or, of the newest version, where Debian
// installs it. Without it the bench is skipped.
func postgresProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return debianProgram(name)
	}
	return path, nil
}

// debianProgram finds a program of the newest PostgreSQL where Debian installs it.
func debianProgram(name string) (string, error) {
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	paths, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql", "*", "bin", name))
	if len(paths) == 0 {
		return "", skipf("no %s in PATH or /usr/lib/postgresql (see -server)", name)
	}
	return slices.MaxFunc(paths, func(a, b string) int { return version(a) - version(b) }), nil
}

// asPostgres is a command for a program that refuses to run as root: then the user postgres runs
// it. setpriv replaces itself by the program, so that signals reach it.
func asPostgres(path string, args ...string) *exec.Cmd {
	if os.Getuid() != 0 {
		return exec.Command(path, args...)
	}
	return exec.Command("setpriv", append([]string{"--reuid=postgres", "--regid=postgres",
		"--clear-groups", "--", path}, args...)...)
}

// giveToPostgres makes a folder in the folder of the bench that of the user who runs the programs.
func giveToPostgres(bench, dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return skipf("PostgreSQL does not run as root: %v", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	if err := os.Chmod(bench, 0o711); err != nil { // the way to dir
		return err
	}
	return os.Chown(dir, uid, gid)
}

// tableAge is what a table holds beside its rows.
type tableAge struct {
	dead  int64 // rows that no transaction sees, as the server estimates
	bytes int64 // of its files, with those of indexes and large values
}

// readTableAges reads the age of every table of Millrace.
func readTableAges(ctx context.Context, conn *pgx.Conn) (map[string]tableAge, error) {
	rows, err := conn.Query(ctx, `SELECT relname,n_dead_tup,pg_total_relation_size(relid)
		FROM pg_stat_user_tables WHERE relname<>'goose_db_version'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ages := map[string]tableAge{}
	for rows.Next() {
		var name string
		var age tableAge
		if err := rows.Scan(&name, &age.dead, &age.bytes); err != nil {
			return nil, err
		}
		ages[name] = age
	}
	return ages, rows.Err()
}

// hold keeps a transaction open in another session, with a snapshot that keeps every row of its
// time alive, until ctx ends.
func hold(ctx context.Context, pg *Postgres) error {
	conn, err := pgx.ConnectConfig(ctx, pg.dsn.ConnConfig.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"
	if _, err := conn.Exec(ctx, begin); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
