package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// mixedNodes are two nodes of different versions on one PostgreSQL.
type mixedNodes struct {
	*testing.T
	args  []string
	nodes []*client.Client
	forge []*client.ForgeRun // of one client, on each node
	ran   sync.Map           // what a worker has run
}

// add starts a node of a binary.
func (w *mixedNodes) add(binary, name string) *launchedServer {
	w.Helper()
	s, err := launch(binary, filepath.Join(w.TempDir(), name), nil, w.args...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.kill)
	awaitReady(w.T, s.url)
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		w.Fatal(err)
	}
	w.nodes = append(w.nodes, c)
	return s
}

// submit submits jobs of three contracts on a node, under a name of their own.
func (w *mixedNodes) submit(node int, name string, n int) (forgeIDs []string) {
	w.Helper()
	for i := range n {
		id := fmt.Sprint(name, i)
		if err := w.nodes[node].Relay().Enqueue(w.Context(), []client.RelaySpec{{Queue: "mail",
			ID: id, Timeout: time.Minute}}, client.RelayUnique); err != nil {
			w.Fatal(err)
		}
		if _, err := w.nodes[node].TaskFlow().Submit(w.Context(),
			client.TaskFlowSpec{Name: id, Queue: "etl"}); err != nil {
			w.Fatal(err)
		}
		made, err := w.forge[node].Submit(w.Context(), client.ForgeRunSpec{
			Type: client.ForgeRunTypeExecute, Kind: client.ForgeRunWorkSuccessFast})
		if err != nil {
			w.Fatal(err)
		}
		forgeIDs = append(forgeIDs, made.JobID)
	}
	return forgeIDs
}

// work takes what is ready in Relay and TaskFlow, on both nodes at the same time, until each job
// has run. One that runs twice fails the test.
func (w *mixedNodes) work(jobs int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), testTimeout)
	defer cancel()
	var mu sync.Mutex
	remaining := 2 * jobs
	ran := func(id string) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := w.ran.LoadOrStore(id, true); twice {
			w.Errorf("%s ran twice", id)
		}
		if remaining--; remaining == 0 {
			cancel()
		}
	}
	var all sync.WaitGroup
	for _, c := range w.nodes {
		all.Go(func() {
			for ctx.Err() == nil {
				jobs, err := c.Relay().Claim(ctx, "mail", 3, 100*time.Millisecond)
				for _, j := range jobs {
					if err = c.Relay().Complete(ctx, j.Run()); err != nil {
						break
					}
					ran("relay " + j.ID)
				}
				if err != nil && ctx.Err() == nil {
					w.Error(err)
				}
			}
		})
		all.Go(func() {
			for ctx.Err() == nil {
				jobs, err := c.WorkerAPI().Claim(ctx, client.ClaimQuery{Contract: "taskflow",
					Queues: []string{"etl"}, Worker: "w:1", Max: 3}, 100*time.Millisecond)
				for _, j := range jobs {
					if err = c.WorkerAPI().Complete(ctx, j.RunID, nil); err != nil {
						break
					}
					ran("taskflow " + j.ID)
				}
				if err != nil && ctx.Err() == nil {
					w.Error(err)
				}
			}
		})
	}
	all.Wait()
	if remaining != 0 {
		w.Errorf("%d jobs have not run", remaining)
	}
}

const migrations = "internal/store/postgres/migrations"

// olderCommit is the commit before the one that brought the newest migration: the last of the
// version of the schema before. It is empty where the checkout has no such history.
func olderCommit(t *testing.T) string {
	t.Helper()
	commit, err := boundedCommand(t, "git", "-C", "../..", "log", "-1", "--format=%H",
		"--diff-filter=A", "--", migrations).Output()
	if err != nil || len(commit) == 0 {
		return ""
	}
	// In a shallow clone the oldest commit seems to have brought everything, and has no parent.
	parent, err := boundedCommand(t, "git", "-C", "../..", "rev-parse", "--verify", "--quiet",
		strings.TrimSpace(string(commit))+"^").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(parent))
}

// buildOlder builds Millrace as it was at a commit.
func buildOlder(t *testing.T, commit string) string {
	t.Helper()
	tree, archive := t.TempDir(), filepath.Join(t.TempDir(), "older.tar")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	binary := filepath.Join(tree, "millrace-older")
	for _, command := range [][]string{
		{"git", "-C", "../..", "archive", "-o", archive, commit},
		{"tar", "-xf", archive, "-C", tree},
		{"go", "build", "-C", tree, "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", binary,
			"./cmd/millrace"},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err !=
			nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return binary
}

// TestOlderNode runs a node of the last version of the schema before, or of the binary that
// MILLRACE_TEST_OLDER names, and one of this version on one PostgreSQL, as while nodes are replaced
// one after another: the new one brings the schema up to date under the old one, and each takes and
// runs what the other one was given, of all contracts, schedules and webhooks of clients. A
// checkout without history has no older version: there two nodes of this one are tried, in a test
// of another name, unless all tests are required. MILLRACE_TEST_OLDER=none says that this is so.
func TestOlderNode(t *testing.T) {
	t.Parallel()
	older, commit := os.Getenv("MILLRACE_TEST_OLDER"), ""
	if older == "" {
		commit = olderCommit(t)
	}
	switch {
	case older != "" && older != noOlder:
		checkMixed(t, "named", older)
	case commit != "":
		checkMixed(t, "schema before", buildOlder(t, commit))
	case older == "" && os.Getenv("MILLRACE_TEST_REQUIRE") == "1":
		t.Fatal("this checkout has no history with an older version: get it by git fetch " +
			"--unshallow, or set MILLRACE_TEST_OLDER to a binary or to none")
	default:
		checkMixed(t, "same version for want of history", mustMillrace(t))
	}
}

// noOlder is the MILLRACE_TEST_OLDER of who knows that there is no older version.
const noOlder = "none"

// checkMixed has an older binary beside this one: with workers of its clients, with the work that a
// server does itself, and under load.
func checkMixed(t *testing.T, name, older string) {
	t.Helper()
	t.Run(name, func(t *testing.T) { checkMixedNodes(t, older) })
	t.Run(name+", work of the server", func(t *testing.T) { checkMixedWork(t, older) })
	checkUpgradesUnderLoad(t, name, older)
}

// checkMixedNodes has a node of an older binary and one of this version take and run jobs.
func checkMixedNodes(t *testing.T, older string) {
	t.Helper()
	const n = 30
	pepper := filepath.Join(t.TempDir(), "pepper")
	mustWriteFile(t, filepath.Dir(pepper), "pepper", []byte(strings.Repeat("0123456789abcdef", 4)))
	w := &mixedNodes{T: t, args: []string{"--set", "store=" + pgtest.URL(t), "--set",
		"secrets.pepper_file=" + pepper, "--set", "contracts=relay,taskflow,forgerun",
		"--set", "log.level=warn", "--set", "forgerun.duration_scale=0.001",
		"--set", "forgerun.rate_limit_per_minute=1000000"}}
	former := w.add(older, "older")
	id, err := w.nodes[0].ForgeRun().CreateClient(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.nodes[0].ForgeRun().CreateFirstAPIKey(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w.forge = []*client.ForgeRun{w.nodes[0].ForgeRun().WithAPIKey(key.APIKey)}
	forge := w.submit(0, "before", n)
	current := w.add(mustMillrace(t), "current")
	w.forge = append(w.forge, w.nodes[1].ForgeRun().WithAPIKey(key.APIKey))
	forge = append(forge, w.submit(0, "old", n)...)
	forge = append(forge, w.submit(1, "new", n)...)
	w.work(3 * n)
	for i, id := range forge {
		j, err := w.forge[i%2].Wait(t.Context(), id)
		if err != nil || j.Failure != nil {
			t.Errorf("%s: %+v, %v", id, j, err)
		}
	}
	for _, s := range []*launchedServer{former, current} {
		if err := s.terminate(); err != nil {
			t.Error(err)
		}
		if log := s.stderr.String(); log != "" {
			t.Logf("a node says:\n%s", log)
		}
	}
}
