package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// scalingBlock is the n-th block of a language on docs/scaling.md, with texts that stand in it, in
// pairs with what the test has in their place.
func scalingBlock(t *testing.T, language string, n int, replace ...string) string {
	t.Helper()
	blocks := codeBlocks(t, "scaling.md", language)
	if n >= len(blocks) {
		t.Fatalf("the page has %d blocks of %s", len(blocks), language)
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(blocks[n], replace[i]) {
			t.Fatalf("the block does not have %q", replace[i])
		}
	}
	return strings.NewReplacer(replace...).Replace(blocks[n])
}

// TestScalingByContract: behind nginx as docs/scaling.md has it two deployments look like one. What
// belongs to Relay is in one, whatever the names, and all else in the other.
func TestScalingByContract(t *testing.T) {
	t.Parallel()
	nginx := proxyProgram(t, "nginx")
	cert, key := certificateFiles(t)
	relay := launchNode(t, "relay", "--set", "contracts=relay")
	p := startBehindProxy(t, "https", func(dir, address, upstream string) *exec.Cmd {
		site := scalingBlock(t, "nginx", 0, "listen 443 ssl;", "listen "+address+" ssl;",
			"/etc/ssl/jobs.crt", cert, "/etc/ssl/jobs.key", key, "127.0.0.1:8080", upstream,
			"127.0.0.1:8081", strings.TrimPrefix(relay.url, "http://"))
		return nginxCommand(t, nginx, dir, site)
	})
	p.submit(t, "kept")
	p.checkNames(t)
	if here, there := queuedJobs(t, relay.url), queuedJobs(t, p.server.url); !strings.Contains(here,
		`queue="kept"`) || strings.Contains(there, `queue="kept"`) {
		t.Errorf("Relay's deployment has %q, the other %q", here, there)
	}
	for _, check := range outageChecks(0)[1:] {
		if status, body := sendTo(t, p.client, check.method, p.url+check.path, check.body,
			pairsOf(check.header)...); status >= 300 {
			t.Errorf("%s answers %d %s", check.name, status, body)
		}
	}
}

// pairsOf are the members of a header as sendTo takes them.
func pairsOf(header map[string]string) (pairs []string) {
	for name, value := range header {
		pairs = append(pairs, name, value)
	}
	return pairs
}

// movingQueue puts jobs into queues by the code of docs/scaling.md, moves one of them, and works.
const movingQueue = `
moved.clear()
for n in range(20):
    relay_of(f"q{n}").enqueue(millrace.RelaySpec(f"q{n}", "1", timeout=60))
for n in range(50):
    if n == 25:
        moved["mail"] = 1
    relay_of("mail").enqueue(millrace.RelaySpec("mail", f"job{n:02}", timeout=60))
print(*(d.relay().exists("mail", id) for d in deployments for id in ("job24", "job25")))
ran, all_ran = [], threading.Event()
def handler(run):
    ran.append(run.job.id)
    if len(ran) == 50:
        all_ran.set()
workers = work("mail", handler)
assert all_ran.wait(60), ran
for one in workers:
    one.stop()
assert len(set(ran)) == 50, ran
`

// TestScalingByQueue: a client that chooses a deployment by the queue, as docs/scaling.md has it,
// spreads queues over two databases, and a queue that moves loses and doubles no job.
func TestScalingByQueue(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal(err)
	}
	replace, urls := []string{}, []string{}
	for i := range 2 {
		s := launchNode(t, fmt.Sprint("deployment", i), "--set", "contracts=relay", "--set",
			"store="+outside.NewPostgres(t).Database("millrace"))
		urls = append(urls, s.url)
		replace = append(replace, fmt.Sprintf("https://jobs%d.internal", i), s.url)
	}
	c := boundedCommand(t, "python3", "-c", scalingBlock(t, "python", 0, replace...)+movingQueue)
	c.Env = append(os.Environ(), "PYTHONPATH=../../clients/python")
	out, err := c.CombinedOutput()
	if err != nil || string(out) != "True False False True\n" {
		t.Fatalf("the jobs before and after the move are on both: %v: %s", err, out)
	}
	here, there := queuedJobs(t, urls[0]), queuedJobs(t, urls[1])
	for i := range 20 {
		label := fmt.Sprintf(`queue="q%d"`, i)
		if strings.Contains(here, label) == strings.Contains(there, label) {
			t.Errorf("%s is in both deployments, or in none", label)
		}
	}
	if !strings.Contains(here, `queue="q`) || !strings.Contains(there, `queue="q`) {
		t.Errorf("one deployment has all queues: %q, %q", here, there)
	}
}

// TestScalingNATS: FetchBox on a cluster of three servers, as docs/scaling.md configures both,
// keeps three copies and goes on when a server dies.
func TestScalingNATS(t *testing.T) {
	t.Parallel()
	cluster := outside.NewNATSClusterFromFile(t, scalingBlock(t, "nats", 0))
	dir, replace := t.TempDir(), []string{}
	for i, s := range cluster.Servers {
		replace = append(replace, fmt.Sprintf("nats://n%d.internal:4222", i), s.URL)
	}
	mustWriteFile(t, dir, "millrace.toml", []byte(scalingBlock(t, "toml", 0, replace...)))
	conn, err := nats.Connect(cluster.URL, nats.Token("secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	pollUntil(t.Fatalf, "the cluster to have a leader", func() bool {
		_, err := js.AccountInfo(t.Context())
		return err == nil
	})
	site := newOrigin(t, nil)
	s := launchFetchBox(t, filepath.Join(dir, "data"), "--config",
		filepath.Join(dir, "millrace.toml"))
	fetch := func(name string) {
		t.Helper()
		status, id := 0, ""
		pollUntil(t.Fatalf, "a manifest to be accepted", func() bool {
			status, id = postManifest(t, s.url, name, site.resources(name, 3))
			return status == http.StatusAccepted
		})
		awaitFetched(t, s.url, id, 3)
	}
	fetch("before")
	for _, name := range []string{"JOBS_TASKS", "JOBS_LOGS", "JOBS_DLQ"} {
		if found, err := js.Stream(t.Context(), name); err != nil ||
			found.CachedInfo().Config.Replicas != 3 {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	cluster.Servers[0].Kill()
	fetch("after")
}

// TestScalingReplica: what docs/scaling.md has read from a replica does.
func TestScalingReplica(t *testing.T) {
	t.Parallel()
	primary, site, dir := outside.NewPostgres(t), newOrigin(t, nil), t.TempDir()
	s := launchFetchBox(t, filepath.Join(dir, "data"), "--set", "store="+primary.Database("mine"))
	_, id := postManifest(t, s.url, "m", site.resources("m", 2))
	awaitFetched(t, s.url, id, 2)
	c := boundedCommand(t, "sh", "-ec", scalingBlock(t, "sh", 0))
	c.Dir = dir
	c.Env = append(os.Environ(), "REPLICA="+primary.Standby().URL("mine", "mine"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "jobs.jsonl")); err != nil ||
		!strings.Contains(string(text), id) {
		t.Errorf("the export has %s, %v", text, err)
	}
}

// storeOfScaling is the setting store of the page, on two hosts of this machine without TLS.
func storeOfScaling(t *testing.T, first, second, user string) string {
	t.Helper()
	line := scalingBlock(t, "toml", 1, "pg0.internal:5432", first, "pg1.internal:5432", second,
		"millrace:secret@", user+"@", "sslmode=verify-full", "sslmode=disable")
	url, found := strings.CutPrefix(strings.TrimSpace(line), `store = "`)
	if !found {
		t.Fatal(line)
	}
	return strings.TrimSuffix(url, `"`)
}

// failoverWorld has two nodes on two servers, which name them in either order, and a run on each.
type failoverWorld struct {
	nodes   []*launchedServer
	clients []*client.Client
	jobs    []client.ClaimedJob
}

// newFailoverWorld begins a run of TaskFlow on each node. Its lease outlasts a failover that a busy
// machine delays.
func newFailoverWorld(t *testing.T, user string, addresses ...string) *failoverWorld {
	t.Helper()
	w := &failoverWorld{}
	for i := range addresses {
		name := fmt.Sprint("q", i)
		s := launchNode(t, name, "--set", "contracts=taskflow", "--set", "taskflow.lease=5m",
			"--set", "store="+storeOfScaling(t, addresses[i], addresses[1-i], user))
		c, err := client.New(client.Config{BaseURL: s.url})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.TaskFlow().Submit(t.Context(),
			client.TaskFlowSpec{Name: name, Queue: name}); err != nil {
			t.Fatal(err)
		}
		w.nodes, w.clients = append(w.nodes, s), append(w.clients, c)
		jobs, err := c.WorkerAPI().Claim(t.Context(), client.ClaimQuery{Contract: "taskflow",
			Queues: []string{name}, Worker: "host:1"}, 0)
		if err != nil || len(jobs) != 1 {
			t.Fatalf("claimed %v: %v", jobs, err)
		}
		w.jobs = append(w.jobs, jobs[0])
	}
	return w
}

// goesOn completes the runs, once the nodes have found the other primary. A completion whose answer
// was lost is refused the second time, and the job is completed.
func (w *failoverWorld) goesOn(t *testing.T) {
	t.Helper()
	for i, s := range w.nodes {
		c, claimed, last := w.clients[i], w.jobs[i], error(nil)
		if !testkit.Poll(testTimeout, func() bool {
			if last = c.WorkerAPI().Complete(t.Context(), claimed.RunID, nil); last == nil {
				return true
			}
			j, err := c.TaskFlow().Get(t.Context(), claimed.ID)
			return err == nil && j.Status == client.TaskFlowStatusCompleted
		}) {
			t.Fatalf("the run was not completed after the failover: %v", last)
		}
		awaitReady(t, s.url)
	}
}

// TestScalingFailover: nodes whose store names two servers, as docs/scaling.md has it, go on with
// the one that was promoted, and so do their runs.
func TestScalingFailover(t *testing.T) {
	t.Parallel()
	primary := outside.NewPostgres(t)
	primary.Database("millrace")
	standby := primary.Standby()
	primary.Exec("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'",
		"SELECT pg_reload_conf()")
	w := newFailoverWorld(t, "millrace", primary.Address(), standby.Address())
	primary.Kill()
	standby.Promote()
	w.goesOn(t)
}

// TestScalingPatroni is the same with Patroni as docs/scaling.md configures it: nodes follow a
// switchover by the command of the page, and Patroni finds out by itself that the primary is gone.
func TestScalingPatroni(t *testing.T) {
	t.Parallel()
	p := outside.NewPatroniFromFile(t, scalingBlock(t, "yaml", 0))
	p.Exec("secret", "postgres", "CREATE ROLE millrace LOGIN PASSWORD 'secret'",
		"CREATE DATABASE millrace OWNER millrace")
	w := newFailoverWorld(t, "millrace:secret", p.Addresses()...)
	p.SwitchOver(inlineCommand(t, "docs/scaling.md", "patronictl "))
	for _, s := range w.nodes {
		awaitReady(t, s.url)
	}
	p.KillPrimary()
	w.goesOn(t)
}

// scalingTable is the rows of the table of docs/scaling.md whose heading has a word, as cells.
func scalingTable(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(documents(t)["docs/scaling.md"], "\n| "+heading)
	if !found {
		t.Fatalf("the page has no table with %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[2:] // without the heading and the line below it
}

// humanBytes writes bytes as the page does: gigabytes below ten and terabytes have one decimal.
func humanBytes(n float64) string {
	switch {
	case n < 1e9:
		return fmt.Sprintf("%.0f MB", n/1e6)
	case n < 9.95e9:
		return fmt.Sprintf("%.1f GB", n/1e9)
	case n < 999.5e9:
		return fmt.Sprintf("%.0f GB", n/1e9)
	}
	return fmt.Sprintf("%.1f TB", n/1e12)
}

// TestSizesOfTheDocs: what docs/scaling.md says of disks, logs and memory at some rates is computed
// from the bytes of a job in its first table.
func TestSizesOfTheDocs(t *testing.T) {
	t.Parallel()
	measured := map[string][]string{}
	for _, cells := range scalingTable(t, "contract | SQLite: queued") {
		contract, _, _ := strings.Cut(strings.ReplaceAll(cells[0], " (", ","), ",")
		measured[contract] = cells
	}
	columns := map[string]int{"disk, SQLite": 2, "memory of PostgreSQL": 4, "disk, PostgreSQL": 5,
		"log of PostgreSQL": 6, "objects": 8}
	seconds := map[string]float64{"1 hour": 3600, "1 day": 24 * 3600, "30 days": 30 * 24 * 3600}
	rows := scalingTable(t, "| contract | for")
	if len(rows) < 28 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, cells := range rows {
		what, contract, length := cells[0], cells[1], seconds[cells[2]]
		if len(measured[contract]) == 0 || columns[what] == 0 || length == 0 {
			t.Fatalf("the first table has nothing of %v", cells)
		}
		want := measured[contract][columns[what]]
		size, err := strconv.ParseFloat(strings.ReplaceAll(want, ",", ""), 64)
		if err != nil || cells[3] != want {
			t.Errorf("%v: the first table has %s: %v", cells, want, err)
		}
		for i, rate := range []float64{10, 100, 1000} {
			if want := humanBytes(size * rate * length); cells[4+i] != want {
				t.Errorf("%s of %s at %v jobs/s is %s, want %s", what, contract, rate, cells[4+i], want)
			}
		}
	}
}

// TestFiguresOfScaling: the rates that docs/scaling.md has of one node stand on
// docs/performance.md, which says how they were taken.
func TestFiguresOfScaling(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	_, section, _ := strings.Cut(pages["docs/scaling.md"], "## How far one node goes")
	section, _, _ = strings.Cut(section, "\n## ")
	figures := regexp.MustCompile(`\d+,\d{3}`).FindAllString(section, -1)
	if len(figures) < 4 {
		t.Errorf("the page has %v", figures)
	}
	for _, figure := range figures {
		if !strings.Contains(pages["docs/performance.md"], "| "+figure+" |") &&
			!strings.Contains(pages["docs/performance.md"], "| **"+figure+"** |") {
			t.Errorf("docs/performance.md does not have %s", figure)
		}
	}
}
