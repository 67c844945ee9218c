package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/simulate"
)

// simulateAgainst runs a whole simulate command in this process.
func simulateAgainst(t *testing.T, server string, args ...string) (code int, m simulate.Summary,
	out,
	errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	start := time.Now()
	code = run(cli.Process{Args: append([]string{"simulate", "--server", server, "--json"},
		args...),
		Stdin:  strings.NewReader(""),
		Stdout: &stdout, Stderr: &stderr, Now: time.Now, Elapsed: func() time.Duration {
			return time.Since(start)
		}})
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &m); err != nil {
			t.Fatalf("%v in %s", err, &stdout)
		}
	}
	return code, m, stdout.String(), stderr.String()
}

// The server is killed with SIGKILL again and again while it is simulated against, and started
// again on the same directory and address: what was acknowledged is there (FR-177, FR-249), runs
// that were lost are accounted for (FR-175, FR-182), and webhooks that were pending are delivered
// (FR-195).
func TestSimulateUnderKills(t *testing.T) {
	t.Parallel()
	binary := mustWatched(t)
	address, dir := freeAddress(t), filepath.Join(t.TempDir(), "data")
	start := func() *launchedServer {
		t.Helper()
		s, err := launch(binary, dir, nil, "--set", "listen="+address, "--set",
			"forgerun.duration_scale=0.01", "--set", "forgerun.workers=16",
			"--set", "forgerun.lease=5s", "--set", "forgerun.heartbeat=200ms", "--set",
			"forgerun.backoff_base=50ms",
			"--set", "forgerun.rate_limit_per_minute=1000000", "--set",
			"forgerun.anonymous_rate_limit_per_minute=1000",
			"--set", "webhook.backoff_base=50ms", "--set", "webhook.timeout=3s", "--set",
			"webhook.backoff_factor=1.5", "--set", "log.level=error")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.kill)
		return s
	}
	server := start()
	type end struct {
		code      int
		m         simulate.Summary
		out, errs string
	}
	ended := make(chan end, 1)
	started := make(chan struct{})
	go func() {
		var e end
		close(started)
		e.code, e.m, e.out, e.errs = simulateAgainst(t, "http://"+address, "--rate", "40",
			"--duration", "10s", "--settle", "100s", "--slow", "100ms", "--concurrency", "150")
		ended <- e
	}()
	<-started
	kills := 0
	for kills < 3 && isUnderLoad(t, server, func() bool { return len(ended) > 0 }) {
		server.kill()
		server = start()
		kills++
	}
	select {
	case e := <-ended:
		if e.code != 0 || !e.m.Balanced || e.m.Outages == 0 || kills == 0 {
			t.Errorf("code %d, %d outages of %d kills: %s%s\n%s", e.code, e.m.Outages, kills, e.out,
				e.errs, server.stderr.String())
		}
		t.Logf("%d jobs, %d runs lost, %d requeued, %d events, %d accepted again, %d outages",
			e.m.Jobs, e.m.LostRuns, e.m.Requeued, e.m.Events, e.m.Repeated, e.m.Outages)
	case <-time.After(4 * time.Minute):
		t.Fatal("the simulation does not end")
	}
}

// freeAddress is one that nobody listens on, for a server that comes back to it.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

var submittedTotal = regexp.MustCompile(`(?m)^jobs_submitted_total (\d+)`)

// isUnderLoad waits until a server has taken some submits since it was started, and reports true,
// or until the load has ended: a machine that starts servers slowly may have time for few.
func isUnderLoad(t *testing.T, s *launchedServer, hasEnded func() bool) bool {
	t.Helper()
	pollUntil(t.Fatalf, "the server to be under load", func() bool {
		if hasEnded() {
			return true
		}
		resp, err := http.Get(s.url + "/metrics/forgerun")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		found := submittedTotal.FindSubmatch(text)
		if err != nil || found == nil {
			return false
		}
		n, err := strconv.Atoi(string(found[1]))
		return err == nil && n >= 40
	})
	return !hasEnded()
}

// An interrupted simulation audits the scenarios that had ended and counts the others.
func TestSimulateInterrupted(t *testing.T) {
	t.Parallel()
	server := launchNode(t, "data", "--set", "forgerun.duration_scale=0.01")
	cmd := exec.Command(mustMillrace(t), "simulate", "--server", server.url, "--duration", "1m",
		"--mix", "SUCCESS_FAST,SCHEDULED_FAR_FUTURE", "--json")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(testTimeout, func() { _ = cmd.Process.Kill() })
	defer hang.Stop()
	lines := bufio.NewScanner(stderr)
	output, load := "", ""
	for lines.Scan() {
		if output = lines.Text(); strings.HasPrefix(output, "load: ") {
			load = output
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != cli.ExitInterrupted ||
		output != "millrace: interrupted" {
		t.Errorf("code %d, %q, %s", code, output, &stdout)
	}
	if !regexp.MustCompile(`^load: \d+ scenarios? started, \d+ ended \(\d % of the time\), `).MatchString(
		load) {
		t.Errorf("the load says %q", load)
	}
	var m simulate.Summary
	if err := json.Unmarshal(stdout.Bytes(), &m); err != nil {
		t.Fatalf("%v: %s", err, &stdout)
	}
	fast, far := m.Kinds["SUCCESS_FAST"], m.Kinds["SCHEDULED_FAR_FUTURE"]
	if m.Balanced || !m.Interrupted || m.Violations != 0 || m.Unfinished == 0 || fast == nil ||
		fast.Submits == 0 || fast.Outcomes["SUCCESS"] != fast.Submits || far != nil {
		t.Errorf("got %s", &stdout)
	}
}
