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
	"syscall"
	"testing"
)

// PostgresServer is a PostgreSQL server for one test, which can be stopped, restarted and
// configured. Its superuser is postgres. No role needs a password. Tests that need no server of
// their own share the one that pgtest finds.
type PostgresServer struct {
	tb      testing.TB
	dir     string
	port    string
	roles   []string
	process *process
}

// NewPostgres starts a server in a directory of its own and ends it with the test. Each of the
// settings is NAME=VALUE. It does not sync to the disk, so a test cannot be about a crash of the
// machine.
func NewPostgres(tb testing.TB, settings ...string) *PostgresServer {
	tb.Helper()
	initdb := postgresProgram(tb, "initdb")
	s := &PostgresServer{tb: tb, dir: serviceDir(tb), roles: []string{"postgres"}}
	_, s.port, _ = strings.Cut(freeAddress(tb), ":")
	data := filepath.Join(s.dir, "data")
	create := serviceCommand(tb, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--no-locale", "--no-sync")
	if text, err := create.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, text)
	}
	s.Start(settings...)
	return s
}

// Start starts a server that was stopped, with other settings. It has the port and the data of
// before and returns when the server accepts connections.
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

// Stop shuts the server down with all of its connections, and waits until it has ended. It is what
// an operator does for maintenance; clients see their connections end.
func (s *PostgresServer) Stop() {
	s.tb.Helper()
	if err := s.process.cmd.Process.Signal(os.Interrupt); err != nil { // a fast shutdown
		s.tb.Fatal(err)
	}
	<-s.process.ended
}

// Kill ends the server at once, as a crash of its processes does. What had not been committed is
// gone with the next Start, which recovers the rest.
func (s *PostgresServer) Kill() {
	s.tb.Helper()
	if err := s.process.cmd.Process.Signal(syscall.SIGQUIT); err != nil { // an immediate shutdown
		s.tb.Fatal(err)
	}
	<-s.process.ended
}

// Freeze makes the server silent until the end of the test, as a machine that hangs: it ends no
// connection, and answers nothing. The first process is stopped before the others, so that it
// starts no more.
func (s *PostgresServer) Freeze() {
	s.tb.Helper()
	pid := s.process.cmd.Process.Pid
	freeze := func(pid int) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			s.tb.Errorf("process %d: %v", pid, err)
		}
	}
	freeze(pid)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			s.tb.Fatal(err)
		}
		freeze(child)
		s.tb.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	}
}

// URL is the URL of a database for a role.
func (s *PostgresServer) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, s.Address(), database)
}

// Address is where the server listens.
func (s *PostgresServer) Address() string { return "127.0.0.1:" + s.port }

// Database makes a database and a role of the same name that owns it and is no superuser, and
// returns its URL.
func (s *PostgresServer) Database(name string) string {
	s.tb.Helper()
	s.Exec("postgres", "CREATE ROLE "+name+" LOGIN", "CREATE DATABASE "+name+" OWNER "+name)
	s.roles = append(s.roles, name)
	return s.URL(name, name)
}

// Schemas makes n roles, each with a schema of its own in the database postgres, and returns their
// names. Tests of many nodes use them instead of databases, whose creation takes long.
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

// Standby starts another server that replicates this one. It refuses writes until Promote. It is a
// copy at the moment of the call, and follows from there.
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

// Promote makes a standby a primary, as a failover does.
func (s *PostgresServer) Promote() { s.tb.Helper(); s.Exec("postgres", "SELECT pg_promote()") }

// Exec runs statements in a database as the superuser. A statement that fails stops the test with
// the text of psql.
func (s *PostgresServer) Exec(database string, statements ...string) {
	s.tb.Helper()
	args := []string{"-X", "-q", "-v", "ON_ERROR_STOP=1", s.URL("postgres", database)}
	for _, statement := range statements {
		args = append(args, "-c", statement)
	}
	cmd := exec.Command(postgresProgram(s.tb, "psql"), args...)
	if text, err := cmd.CombinedOutput(); err != nil {
		s.tb.Fatalf("%s: %v\n%s", strings.Join(statements, "; "), err, text)
	}
}

// Disconnect ends all connections to a database. It is what a failover or a pooler does to clients:
// the server is there at once for new ones.
func (s *PostgresServer) Disconnect(database string) {
	s.tb.Helper()
	s.Exec("postgres",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname='"+
			database+"'")
}

// postgresProgram finds a program of PostgreSQL on the path or, of the newest version, where Debian
// installs it. A program that is missing skips the test.
func postgresProgram(tb testing.TB, name string) string {
	tb.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		return debianProgram(tb, name)
	}
	return file
}

// debianProgram finds a program in the directories of Debian's packages, which are not on the path.
func debianProgram(tb testing.TB, name string) string {
	tb.Helper()
	files, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql", "*", "bin", name))
	if len(files) == 0 {
		missingProgram(tb, name)
	}
	return slices.MaxFunc(files, func(a, b string) int {
		return postgresVersion(a) - postgresVersion(b)
	})
}

// postgresVersion returns the major version in the path of a program.
func postgresVersion(file string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
	return n
}

// missingProgram skips a test whose program is not installed, or fails it when tests must not be
// skipped.
func missingProgram(tb testing.TB, name string) {
	tb.Helper()
	if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		tb.Fatalf("%s is not installed", name)
	}
	tb.Skipf("skipped: %s is not installed", name)
}

// serviceUser is the user for programs that refuse to run as root; "" when the test does not run as
// root.
func serviceUser() string {
	if os.Getuid() != 0 {
		return ""
	}
	return "postgres"
}

// serviceCommand makes a command for a program that refuses to run as root, as those of
// PostgreSQL and PgBouncer do. A test that runs as root runs it as serviceUser.
func serviceCommand(tb testing.TB, file string, args ...string) *exec.Cmd {
	tb.Helper()
	name := serviceUser()
	if name == "" {
		return exec.Command(file, args...)
	}
	// setpriv replaces itself by the program, so that signals reach it.
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		missingProgram(tb, "setpriv")
	}
	return exec.Command(setpriv, append([]string{"--reuid=" + name, "--regid=" + name,
		"--clear-groups", "--", file}, args...)...)
}

// serviceDir makes a directory for such a program. It is not below tb.TempDir, whose path is closed
// to other users.
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

// changeOwner makes a user the owner of a file.
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

// PgBouncer is a connection pooler in front of a server. With pool_mode=transaction, a session
// keeps nothing from one transaction to the next.
type PgBouncer struct {
	address string
	process *process
}

// NewPgBouncer starts a pooler for all databases of a server and the roles that Database has made,
// and ends it with the test. It has the defaults of PgBouncer except for the settings, each
// NAME=VALUE.
func NewPgBouncer(tb testing.TB, s *PostgresServer, settings ...string) *PgBouncer {
	tb.Helper()
	list := `"` + strings.Join(s.roles, "\" \"\"\n\"") + "\" \"\"\n"
	return NewPgBouncerFromFiles(tb, s,
		"[databases]\n* = host=db.internal port=5432\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"+
			"listen_port = 6432\nauth_type = trust\nauth_file = /etc/pgbouncer/userlist.txt\n"+
			strings.Join(settings, "\n"), list)
}

// NewPgBouncerFromFiles starts a pooler with a configuration and a list of users, and ends it with
// the test. The configuration must name the server db.internal; that, the port and the path of the
// list are replaced.
func NewPgBouncerFromFiles(tb testing.TB, s *PostgresServer, ini, list string) *PgBouncer {
	tb.Helper()
	file, err := exec.LookPath("pgbouncer")
	if err != nil {
		missingProgram(tb, "pgbouncer")
	}
	b, dir := &PgBouncer{address: freeAddress(tb)}, serviceDir(tb)
	_, port, _ := strings.Cut(b.address, ":")
	config, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "userlist.txt")
	for _, r := range []struct{ from, to string }{
		{"host=db.internal port=5432", "host=127.0.0.1 port=" + s.port},
		{"listen_port = 6432", "listen_port = " + port},
		{"/etc/pgbouncer/userlist.txt", users},
	} {
		if strings.Count(ini, r.from) != 1 {
			tb.Fatalf("the configuration does not have %q once:\n%s", r.from, ini)
		}
		ini = strings.Replace(ini, r.from, r.to, 1)
	}
	for name, text := range map[string]string{config: ini + "\nunix_socket_dir =\n", users: list} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	b.process, _ = startProcess(tb, "process up", serviceCommand(tb, file, config))
	return b
}

// URL is the URL of a database for a role through the pooler. role may be NAME:PASSWORD.
func (b *PgBouncer) URL(role, database string) string {
	user := url.User(role)
	if name, password, ok := strings.Cut(role, ":"); ok {
		user = url.UserPassword(name, password)
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     user,
		Host:     b.address,
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}
