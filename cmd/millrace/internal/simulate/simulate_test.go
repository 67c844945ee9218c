package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// runSimulation runs a simulation in this process.
func runSimulation(t *testing.T, server string, args ...string) (code int, m Summary, out,
	errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	start := time.Now()
	c := Command(cli.Process{Stdout: &stdout, Stderr: &stderr, Now: time.Now,
		Elapsed: func() time.Duration { return time.Since(start) }})
	c.SetArgs(append([]string{"--server", server, "--json"}, args...))
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.Execute()
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &m); err != nil {
			t.Fatalf("%v in %s", err, &stdout)
		}
	}
	return cli.ExitCode(err), m, stdout.String(), stderr.String()
}

// Against a correct server the accounts balance, and every kind has its scenario.
func TestSimulateCorrectServer(t *testing.T) {
	t.Parallel()
	d := newFakeForgeRun("")
	server := httptest.NewServer(d)
	t.Cleanup(func() { server.Close(); d.stop() })
	code, m, out, errs := runSimulation(t, server.URL, "--rate", "20", "--duration", "3s", "--seed",
		"1", "--slow", "50ms",
		"--refuse", "0.1", "--fail", "0.1", "--stall", "0.005", "--clients", "3", "--concurrency",
		"200", "--settle", "100s")
	if code != 0 || !m.Balanced {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	for _, k := range catalogue {
		c := m.Kinds[string(k.name)]
		if c == nil || c.Submits == 0 {
			t.Errorf("%s was not played", k.name)
		}
	}
	if m.GivenUp == 0 || m.Pending != 0 || m.Accepted < m.Events || m.Outages != 0 || m.Late != 0 ||
		m.Jobs < m.Scenarios || m.Acked < m.Jobs {
		t.Errorf("%s", out)
	}
	for _, l := range m.Latencies {
		if l.Count == 0 || l.P50 > l.P95 || l.P95 > l.P99 || l.P99 > l.Max {
			t.Errorf("%+v", l)
		}
	}
}

// A server with one fault is found out.
func TestSimulateCheats(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{
		"accepts anything": "accepted", "forgets keys": "duplicate", "loses a job": "lost",
		"skips an event":     "path",
		"forges a signature": "forged", "keeps an event back": "undelivered",
		"loses a run": "lost run",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			d := newFakeForgeRun(fault)
			server := httptest.NewServer(d)
			t.Cleanup(func() { server.Close(); d.stop() })
			code, m, out, errs := runSimulation(t, server.URL, "--rate", "100", "--duration",
				"300ms", "--seed", "1", "--settle", "3s",
				"--mix", "SUCCESS_FAST,PAYLOAD_INVALID,DUPLICATE_SUBMIT_SAME_KEY")
			if code != cli.ExitFailed || m.ViolationsByKind[want] == 0 {
				t.Errorf("code %d, want a violation %q: %s%s", code, want, out, errs)
			}
		})
	}
}
