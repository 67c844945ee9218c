package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// requestCheck is a request and what is expected of its answer.
type requestCheck struct {
	name, method, path, body string
	header                   map[string]string
	status                   int
	contains                 string // in the body
}

// send sends the request and returns the status and the body.
func (a requestCheck) send(t *testing.T, url string) (int, string) {
	t.Helper()
	var header []string
	for name, value := range a.header {
		header = append(header, name, value)
	}
	return sendTo(t, http.DefaultClient, a.method, url+a.path, a.body, header...)
}

// outageChecks is a request to each contract, with what it answers while the store is unavailable.
func outageChecks(n int) []requestCheck {
	key := fmt.Sprint(n)
	return []requestCheck{
		{name: "Relay", method: "POST", path: "/v2/queues/jobs", status: http.StatusTooManyRequests,
			body: `[{"queue":"mail","id":"` + key + `","timeout":1,"payload":1}]`},
		{name: "ForgeRun FR-021", method: "POST", path: "/v1/clients",
			status: http.StatusServiceUnavailable, contains: `"code":"RFA_STORAGE_DB_ERROR"`},
		{name: "TaskFlow G-TF-32", method: "POST", path: "/api/v1/jobs",
			status:   http.StatusServiceUnavailable,
			contains: `"code":"INTERNAL_ERROR"`, body: `{"name":"n","queue":"q"}`},
		{name: "FetchBox FB-044", method: "POST", path: "/jobs",
			status:   http.StatusInternalServerError,
			contains: `"code":"INTERNAL_ERROR"`,
			header: map[string]string{"X-Fetchbox-Job-Type": "default",
				"X-Fetchbox-Idempotency-Key": key},
			body: `{"manifest_version":"v1","metadata":{},"resources":[{"id":"a","url":"http://127.0.0.1:1/"}]}`},
		{name: "Images", method: "POST", path: "/images/v1/files?sizes=1",
			status:   http.StatusServiceUnavailable,
			contains: `"code":"SERVICE_UNAVAILABLE"`,
			header:   map[string]string{"Content-Type": "image/gif"}, body: "GIF89a"},
		{name: "worker API", method: "POST", path: "/worker/v1/claims",
			status:   http.StatusServiceUnavailable,
			contains: `"code":"STORAGE_UNAVAILABLE"`,
			body:     `{"contract":"taskflow","queues":["waiting"],"worker":"w"}`},
	}
}

// launchOn starts a server of all contracts on a PostgreSQL, that runs nothing by itself.
func launchOn(t *testing.T, store string, args ...string) *launchedServer {
	t.Helper()
	args = append([]string{"--no-workers", "--set", "store=" + store}, args...)
	return launchIn(t, filepath.Join(t.TempDir(), "data"), args...)
}

// refuseFunctionSQL has the database fail what writes jobs and records, with a SQLSTATE.
const refuseFunctionSQL = `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'made to fail' USING ERRCODE = '%s'; END $$;
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON jobs EXECUTE FUNCTION refuse();
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON leases EXECUTE FUNCTION refuse();
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON records EXECUTE FUNCTION refuse();`

// allowSQL undoes refuseFunctionSQL.
const allowSQL = "DROP TRIGGER refuse ON jobs; DROP TRIGGER refuse ON leases; " +
	"DROP TRIGGER refuse ON records"

// TestDatabaseRefuses: whatever a database says when it lets nobody in, or what it cannot do for
// reasons of its own, is an outage in the words of each contract and is logged.
func TestDatabaseRefuses(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	s := launchOn(t, server.Database("mine"))
	waiting := requestCheck{method: "POST", path: "/api/v1/jobs",
		body: `{"name":"n","queue":"waiting"}`}
	if status, body := waiting.send(t, s.url); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	const closed = "the database refuses the connection"
	for i, c := range []struct{ state, because, refuse, allow string }{
		{"55000", closed, "ALTER DATABASE mine ALLOW_CONNECTIONS false",
			"ALTER DATABASE mine ALLOW_CONNECTIONS true"},
		{"53300", closed, "ALTER DATABASE mine CONNECTION LIMIT 0",
			"ALTER DATABASE mine CONNECTION LIMIT -1"},
		{"28000", closed, "ALTER ROLE mine NOLOGIN", "ALTER ROLE mine LOGIN"},
		{"42P01", "the store's schema is not", "ALTER SCHEMA public RENAME TO away",
			"ALTER SCHEMA away RENAME TO public"},
		{"XX000", "the store failed", "", ""}, {"53200", "the store is unavailable", "", ""},
		{"58030", "the store is unavailable", "", ""}, {"55006", "the store failed", "", ""},
	} {
		t.Run(c.state, func(t *testing.T) {
			refuse, allow, database := c.refuse, c.allow, "postgres"
			if refuse == "" {
				refuse, allow = fmt.Sprintf(refuseFunctionSQL, c.state), allowSQL
			}
			if !strings.Contains(refuse, "ALTER DATABASE") {
				database = "mine"
			}
			server.Exec(database, refuse)
			if c.because == closed {
				server.Disconnect("mine")
			}
			for _, a := range outageChecks(i) {
				if a.name == "Relay" {
					a.contains = c.because
				}
				status, body := a.send(t, s.url)
				if status != a.status || !strings.Contains(body, a.contains) {
					t.Errorf("%s answers %d %s, want %d with %s", a.name, status, body, a.status,
						a.contains)
				}
				if strings.Contains(body, "server's log") { // which has one line for the outage
					t.Errorf("%s refers to a line that the log does not have: %s", a.name, body)
				}
			}
			server.Exec(database, allow)
			for _, a := range outageChecks(i) {
				if a.name == "worker API" {
					continue // it takes the job that the next round waits for
				}
				pollUntil(t.Fatalf, a.name+" to work again", func() bool {
					status, _ := a.send(t, s.url)
					return status < 300
				})
			}
			pollUntil(t.Fatalf, "the end of the outage in the log", func() bool {
				return strings.Count(s.stderr.String(), "a part works again") == i+1
			})
		})
	}
	if err := s.terminate(); err != nil {
		t.Fatal(err)
	}
	isLogged := func(state string) bool {
		return strings.Contains(s.stderr.String(),
			"SQLSTATE "+state)
	}
	for _, state := range []string{"42P01", "XX000", "53200", "58030", "55006"} {
		if !isLogged(state) {
			t.Errorf("the log does not tell of %s", state)
		}
	}
	// The line of an outage has its first error, which may be that of a session that was ended.
	if !slices.ContainsFunc([]string{"55000", "53300", "28000"}, isLogged) {
		t.Errorf("the log has no refused connection:\n%s", s.stderr.String())
	}
}

// TestLeasesOutliveRefusals: a worker whose heartbeats a database turned away keeps its job.
func TestLeasesOutliveRefusals(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	s := launchOn(t, server.Database("mine"), "--set", "contracts=relay")
	put := requestCheck{method: "POST", path: "/v2/queues/jobs",
		body: `[{"queue":"mail","id":"1","timeout":5,"max_retries":9,"payload":1}]`}
	if status, body := put.send(t, s.url); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	_, body := requestCheck{method: "GET", path: "/v2/queues/mail/jobs"}.send(t, s.url)
	_, run, _ := strings.Cut(body, `"run_id":"`)
	run, _, _ = strings.Cut(run, `"`)
	heartbeat := requestCheck{method: "PATCH", path: "/v2/queues/mail/jobs/1/run-id/" + run}
	if status, body := heartbeat.send(t, s.url); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	server.Exec("postgres", "ALTER DATABASE mine ALLOW_CONNECTIONS false")
	server.Disconnect("mine")
	started := time.Now()
	pollUntil(t.Fatalf, "the lease to end", func() bool {
		if status, body := heartbeat.send(t, s.url); status != http.StatusTooManyRequests {
			t.Fatalf("RL-056 got %d %s", status, body)
		}
		return time.Since(started) > 8*time.Second
	})
	server.Exec("postgres", "ALTER DATABASE mine ALLOW_CONNECTIONS true")
	pollUntil(t.Fatalf, "heartbeats to be taken", func() bool {
		status, body := heartbeat.send(t, s.url)
		if status == http.StatusNotFound {
			t.Fatalf("the job was taken away: %s", body)
		}
		return status == http.StatusAccepted
	})
}

// TestNodesBehindPooler: nodes that nothing but a pooler in transaction mode brings together find
// each other's jobs.
func TestNodesBehindPooler(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	server.Database("mine")
	store := outside.NewPgBouncer(t, server, "pool_mode=transaction").URL("mine", "mine")
	a := launchOn(t, store, "--set", "contracts=relay")
	b := launchOn(t, store, "--set", "contracts=relay")
	got := make(chan int)
	go func() {
		status, _ := requestCheck{method: "GET", path: "/v2/queues/mail/jobs",
			header: map[string]string{"Prefer": "wait=30"}}.send(t, b.url)
		got <- status
	}()
	put := requestCheck{method: "POST", path: "/v2/queues/jobs",
		body: `[{"queue":"mail","id":"1","timeout":30,"payload":1}]`}
	if status, body := put.send(t, a.url); status != http.StatusAccepted {
		t.Errorf("%d %s", status, body)
	}
	if status := <-got; status != http.StatusOK {
		t.Errorf("the other node got %d", status)
	}
	for _, s := range []*launchedServer{a, b} {
		if err := s.terminate(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(s.stderr.String(), "connection pooler") {
			t.Errorf("it was not said: %s", s.stderr)
		}
	}
}

// TestStandby: a node on a standby says what is wrong, at its start and when it is asked, blames
// nothing else, and goes on once there was a failover.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := outside.NewPostgres(t)
	pepper := filepath.Join(t.TempDir(), "pepper")
	if err := os.WriteFile(pepper, []byte(strings.Repeat("0123456789abcdef", 4)),
		0o600); err != nil {
		t.Fatal(err)
	}
	settings := []string{"--set", "contracts=forgerun,relay", "--set",
		"secrets.pepper_file=" + pepper}
	first := launchOn(t, primary.Database("mine"), settings...)
	join := requestCheck{method: "POST", path: "/v1/clients"}
	if status, body := join.send(t, first.url); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	if err := first.terminate(); err != nil {
		t.Fatal(err)
	}
	standby := primary.Standby()
	primary.Stop()
	s := launchOn(t, standby.URL("mine", "mine"), settings...)
	put := requestCheck{method: "POST", path: "/v2/queues/jobs",
		body: `[{"queue":"mail","id":"1","timeout":30,"payload":1}]`}
	for _, a := range []requestCheck{
		{method: "GET", path: "/health/ready", status: 503,
			contains: "store fails: the store is read-only: this PostgreSQL is a standby"},
		{method: "POST", path: "/v1/clients", status: 503, contains: "RFA_STORAGE_DB_ERROR"},
		{method: "POST", path: put.path, body: put.body, status: 429, contains: "read-only"},
	} {
		if status, body := a.send(t, s.url); status != a.status ||
			!strings.Contains(body, a.contains) || strings.Contains(body, "pepper fails") {
			t.Errorf("%s %s: got %d %s, want %d with %q", a.method, a.path, status, body, a.status,
				a.contains)
		}
	}
	standby.Promote()
	ready := requestCheck{method: "GET", path: "/health/ready"}
	pollUntil(t.Fatalf, "the node to be ready", func() bool {
		status, _ := ready.send(t, s.url)
		return status == http.StatusOK
	})
	if status, body := put.send(t, s.url); status != http.StatusAccepted {
		t.Errorf("%d %s", status, body)
	}
	if err := s.terminate(); err != nil {
		t.Fatal(err)
	}
	if log := s.stderr.String(); !strings.Contains(log, "the store cannot be written to") ||
		!strings.Contains(log, "this PostgreSQL is a standby") || strings.Contains(log, "pepper") {
		t.Errorf("the log says %s", log)
	}
}

// A database that is made read-only by its default, and then is not any more, takes writes again
// without a restart of the node: connections keep the default of when they were made.
func TestReadOnlyDefaultEnds(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	s := launchOn(t, server.Database("mine"), "--set", "contracts=relay",
		"--set", "postgres.max_connections=1") // so that no other comes by chance
	ready := requestCheck{method: "GET", path: "/health/ready"}
	put := requestCheck{method: "POST", path: "/v2/queues/jobs?mode=ignore",
		body: `[{"queue":"mail","id":"1","timeout":30,"payload":1}]`}
	const setting = "ALTER DATABASE mine %s default_transaction_read_only"
	for name, asked := range map[string]requestCheck{"by updates": put, "by readiness": ready} {
		answers := func(want int, because string) {
			t.Helper()
			pollUntil(t.Fatalf, fmt.Sprintf("%s: %d", name, want), func() bool {
				status, body := asked.send(t, s.url)
				return status == want && strings.Contains(body, because)
			})
		}
		refused, taken := http.StatusServiceUnavailable, http.StatusOK
		if asked.method == put.method {
			refused, taken = http.StatusTooManyRequests, http.StatusAccepted
		}
		answers(taken, "")
		server.Exec("postgres", fmt.Sprintf(setting, "SET")+" = on")
		server.Disconnect("mine")
		answers(refused, "read-only")
		server.Exec("postgres", fmt.Sprintf(setting, "RESET"))
		answers(taken, "")
	}
	if status, body := put.send(t, s.url); status != http.StatusAccepted {
		t.Errorf("%d %s", status, body)
	}
}
