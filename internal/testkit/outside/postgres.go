package outside

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// PostgresServer is a PostgreSQL server of a test alone, which may be stopped, restarted and
// configured. Its superuser is postgres, and nobody needs a password.
type PostgresServer struct {
	tb      testing.TB
	dir     string
	port    string
	roles   []string
	process *process
}

// NewPostgres starts a server in a directory of its own and ends it with the test. Each of the
// settings is NAME=VALUE.
func NewPostgres(tb testing.TB, settings ...string) *PostgresServer {
	tb.Helper()
	initdb := postgresProgram(tb, "initdb")
	s := &PostgresServer{tb: tb, dir: serviceDir(tb), roles: []string{"postgres"}}
	_, s.port, _ = strings.Cut(freeAddress(tb), ":")
	data := filepath.Join(s.dir, "data")
	make := serviceCommand(tb, initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
	if text, err := make.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, text)
	}
	s.Start(settings...)
	return s
}

// Start starts a server that was stopped, with other settings.
func (s *PostgresServer) Start(settings ...string) {
	s.tb.Helper()
	args := []string{"-D", filepath.Join(s.dir, "data"), "-p", s.port, "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	s.process, _ = startProcess(s.tb, "database system is ready to accept",
		serviceCommand(s.tb, postgresProgram(s.tb, "postgres"), args...))
}

// Stop ends the server at once, with all of its connections, and waits for its end.
func (s *PostgresServer) Stop() {
	s.tb.Helper()
	if err := s.process.cmd.Process.Signal(os.Interrupt); err != nil { // a fast shutdown
		s.tb.Fatal(err)
	}
	<-s.process.ended
}

// URL is where a role finds a database.
func (s *PostgresServer) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%s/%s?sslmode=disable", role, s.port, database)
}

// Database makes a database with a role that owns it and is no superuser, both of the name given,
// and returns its URL.
func (s *PostgresServer) Database(name string) string {
	s.tb.Helper()
	s.Exec("postgres", "CREATE ROLE "+name+" LOGIN", "CREATE DATABASE "+name+" OWNER "+name)
	s.roles = append(s.roles, name)
	return s.URL(name, name)
}

// Schemas makes roles that have a schema of their own each in the database postgres, and returns
// their names.
func (s *PostgresServer) Schemas(n int) []string {
	s.tb.Helper()
	var names, statements []string
	for i := range n {
		name := fmt.Sprint("r", i)
		names = append(names, name)
		statements = append(statements, "CREATE ROLE "+name+" LOGIN; CREATE SCHEMA AUTHORIZATION "+
			name)
	}
	s.Exec("postgres", strings.Join(statements, ";"))
	s.roles = append(s.roles, names...)
	return names
}

// Standby starts another server that follows this one and takes no writes until Promote.
func (s *PostgresServer) Standby() *PostgresServer {
	s.tb.Helper()
	standby := &PostgresServer{tb: s.tb, dir: serviceDir(s.tb), roles: s.roles}
	_, standby.port, _ = strings.Cut(freeAddress(s.tb), ":")
	copied := serviceCommand(s.tb, postgresProgram(s.tb, "pg_basebackup"), "-D",
		filepath.Join(standby.dir, "data"), "-R",
		"--checkpoint=fast", "--no-sync", "-d", s.URL("postgres", "postgres"))
	if text, err := copied.CombinedOutput(); err != nil {
		s.tb.Fatalf("pg_basebackup: %v\n%s", err, text)
	}
	standby.Start()
	return standby
}

// Promote makes a standby a server of its own, as a failover does.
func (s *PostgresServer) Promote() { s.tb.Helper(); s.Exec("postgres", "SELECT pg_promote()") }

// Exec runs statements in a database as the superuser.
func (s *PostgresServer) Exec(database string, statements ...string) {
	s.tb.Helper()
	args := []string{"-X", "-q", "-v", "ON_ERROR_STOP=1", s.URL("postgres", database)}
	for _, statement := range statements {
		args = append(args, "-c", statement)
	}
	if text, err := exec.Command(postgresProgram(s.tb, "psql"),
		args...).CombinedOutput(); err != nil {
		s.tb.Fatalf("%s: %v\n%s", strings.Join(statements, "; "), err, text)
	}
}

// Disconnect ends all connections to a database.
func (s *PostgresServer) Disconnect(database string) {
	s.tb.Helper()
	s.Exec("postgres",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname='"+
			database+"'")
}

// postgresProgram finds a program of PostgreSQL, on the path or where Debian has it: of the newest
// version there is.
func postgresProgram(tb testing.TB, name string) string {
	tb.Helper()
	if file, err := exec.LookPath(name); err == nil {
		return file
	}
	files, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql", "*", "bin", name))
	if len(files) == 0 {
		missingProgram(tb, name)
	}
	return slices.MaxFunc(files, func(a, b string) int {
		return postgresVersion(a) - postgresVersion(b)
	})
}

func postgresVersion(file string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
	return n
}

// missingProgram skips a test whose program is not installed, or fails it where nothing may be
// skipped.
func missingProgram(tb testing.TB, name string) {
	tb.Helper()
	if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		tb.Fatalf("%s is not installed", name)
	}
	tb.Skipf("skipped: %s is not installed", name)
}

// serviceUser is who runs programs that refuse to run as root; "" is whoever runs the test.
func serviceUser() string {
	if os.Getuid() != 0 {
		return ""
	}
	return "postgres"
}

// serviceCommand is a command of a program that refuses to run as root.
func serviceCommand(tb testing.TB, file string, args ...string) *exec.Cmd {
	tb.Helper()
	name := serviceUser()
	if name == "" {
		return exec.Command(file, args...)
	}
	// which becomes the program, so that it can be signaled
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		missingProgram(tb, "setpriv")
	}
	return exec.Command(setpriv, append([]string{"--reuid=" + name, "--regid=" + name,
		"--clear-groups", "--", file}, args...)...)
}

// serviceDir is a directory for such a program. The path to the directories of tests is closed to
// other users.
func serviceDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if name := serviceUser(); name != "" {
		changeOwner(tb, dir, name)
	}
	return dir
}

// changeOwner gives a file to a user.
func changeOwner(tb testing.TB, file, name string) {
	tb.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(file, uid, gid); err != nil {
		tb.Fatal(err)
	}
}

// PgBouncer is a pooler before a server.
type PgBouncer struct {
	address string
	process *process
}

// NewPgBouncer starts a pooler that has all databases of a server and the roles made by Database,
// with the defaults of PgBouncer but for the settings given, each NAME=VALUE, and ends it with the
// test.
func NewPgBouncer(tb testing.TB, s *PostgresServer, settings ...string) *PgBouncer {
	tb.Helper()
	list := `"` + strings.Join(s.roles, "\" \"\"\n\"") + "\" \"\"\n"
	return NewPgBouncerFromFiles(tb, s,
		"[databases]\n* = host=db.internal port=5432\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"+
			"listen_port = 6432\nauth_type = trust\nauth_file = /etc/pgbouncer/userlist.txt\n"+
			strings.Join(settings, "\n"), list)
}

// NewPgBouncerFromFiles starts a pooler of a configuration and a list of users, and ends it with
// the test. The server is db.internal to it; its own port and the place of the list are changed to
// free ones.
func NewPgBouncerFromFiles(tb testing.TB, s *PostgresServer, ini, list string) *PgBouncer {
	tb.Helper()
	file, err := exec.LookPath("pgbouncer")
	if err != nil {
		missingProgram(tb, "pgbouncer")
	}
	b, dir := &PgBouncer{address: freeAddress(tb)}, serviceDir(tb)
	_, port, _ := strings.Cut(b.address, ":")
	config, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "userlist.txt")
	for from, to := range map[string]string{
		"host=db.internal port=5432":  "host=127.0.0.1 port=" + s.port,
		"listen_port = 6432":          "listen_port = " + port,
		"/etc/pgbouncer/userlist.txt": users,
	} {
		if strings.Count(ini, from) != 1 {
			tb.Fatalf("the configuration does not have %q once:\n%s", from, ini)
		}
		ini = strings.Replace(ini, from, to, 1)
	}
	for name, text := range map[string]string{config: ini + "\nunix_socket_dir =\n", users: list} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	b.process, _ = startProcess(tb, "process up", serviceCommand(tb, file, config))
	return b
}

// URL is where a role finds a database through the pooler; it may be NAME:PASSWORD.
func (b *PgBouncer) URL(role, database string) string {
	user := url.User(role)
	if name, password, ok := strings.Cut(role, ":"); ok {
		user = url.UserPassword(name, password)
	}
	return (&url.URL{Scheme: "postgres", User: user, Host: b.address, Path: "/" + database,
		RawQuery: "sslmode=disable"}).String()
}
