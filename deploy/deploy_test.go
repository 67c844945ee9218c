// Package deploy checks the files of this folder against the binary that they start. It is a module
// of its own: Millrace does not need what knows Compose and Kubernetes.
package deploy

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// imageContext is a directory that `make image-context` has filled, with Millrace as it is shipped.
var imageContext = sync.OnceValues(func() (string, error) {
	out, err := shell(context.Background(), "..", "make image-context IMAGE_CONTEXT="+contextDir)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return contextDir, nil
})

var contextDir = filepath.Join(os.TempDir(), fmt.Sprintf("millrace-deploy-%d", os.Getpid()))

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(contextDir)
	os.Exit(code)
}

func mustBinary(t *testing.T) string {
	t.Helper()
	dir, err := imageContext()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "millrace")
}

// shell runs a command in a directory and returns all that it prints. It takes two minutes at most.
func shell(ctx context.Context, dir, command string, environ ...string) (string, error) {
	return shellWithin(ctx, 2*time.Minute, dir, command, environ...)
}

// buildTimeout bounds a command that builds binaries, of which nothing may be in Go's cache.
const buildTimeout = 30 * time.Minute

// shellWithin is shell for a command that takes longer.
func shellWithin(ctx context.Context, limit time.Duration, dir, command string,
	environ ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.Dir, c.Env = dir, append(os.Environ(), environ...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// mustShell ends the test when the command fails.
func mustShell(t *testing.T, dir, command string, environ ...string) string {
	t.Helper()
	out, err := shell(t.Context(), dir, command, environ...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// program ends the test where a program is not installed: it is skipped, and failed where all tests
// must run.
func program(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	if err != nil && os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("skipped: ", err)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// node is a running server.
type node struct{ url, environ string }

// startNode starts a server on loopback and waits until it is ready.
func startNode(t *testing.T) node {
	t.Helper()
	return startProgram(t, mustBinary(t))
}

// startProgram is startNode for a binary of its own.
func startProgram(t *testing.T, path string) node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	n := node{"http://" + address, "MILLRACE_SERVER=http://" + address}
	var output bytes.Buffer
	c := exec.Command(path, "serve", "--config", os.DevNull, "--set", "listen="+address,
		"--set", "data_dir="+filepath.Join(t.TempDir(), "data"))
	c.Stdout, c.Stderr = &output, &output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	await(t, "the server to be ready", func() bool {
		_, err := shell(t.Context(), ".", path+" health", n.environ)
		return err == nil
	})
	return n
}

// await polls for what gives no signal of its own.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for !condition() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("timed out waiting for ", what)
		}
	}
}

// get returns the status and the body of an answer.
func (n node) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(n.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// post sends a request that must succeed, with pairs of a header and its value, and decodes the
// answer.
func (n node) post(t *testing.T, path, body string, header ...string) (answer struct {
	Client string `json:"client_id"`
	Key    string `json:"api_key"`
}) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatal(path, resp.Status, err, string(text))
	}
	if len(text) > 0 {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		t.Fatal(path, err)
	}
	return answer
}

// submitEverywhere stores a job of each contract, so that the node has metrics of its queue.
func (n node) submitEverywhere(t *testing.T) {
	t.Helper()
	n.post(t, "/v2/queues/jobs",
		`[{"queue":"mail","id":"1","timeout":60,"max_retries":1,"payload":1}]`)
	n.post(t, "/api/v1/jobs", `{"name":"n","queue":"etl"}`)
	n.post(t, "/jobs", `{"manifest_version":"v1","metadata":{},"resources":[`+
		`{"id":"a","url":"http://127.0.0.1:1/a"}]}`, "X-Fetchbox-Job-Type", "default")
	client := n.post(t, "/v1/clients", "{}").Client
	key := n.post(t, "/v1/clients/"+client+"/keys", "{}").Key
	n.post(t, "/v1/jobs", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
		"Authorization", "Bearer "+key)
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 200, 200))); err != nil {
		t.Fatal(err)
	}
	n.post(t, "/images/v1/files?sizes=100", picture.String(), "Content-Type", "image/png")
}

var (
	sampleName = regexp.MustCompile(`(?m)^([a-z_0-9]+)[{ ]`)
	// What PromQL has besides names of metrics and labels, in the expressions of this folder.
	promWords = regexp.MustCompile(
		`\b(by|sum|max|and|or|rate|increase|time|topk|histogram_quantile)\b`)
	promGroups = regexp.MustCompile(`\bby \([^)]*\)|\[[^\]]*\]|"[^"]*"|\{[^}]*\}`)
	promName   = regexp.MustCompile(`\b[a-z_][a-z_0-9]{2,}`)
	promRegexp = regexp.MustCompile(`__name__=~"([^"]*)"`)
	promLabel  = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~)"`)
)

// TestMetrics: every metric and label of the alerts, the dashboard and the autoscaling is one of a
// real answer.
func TestMetrics(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.submitEverywhere(t)
	var text string
	await(t, "the queues to be counted", func() bool {
		_, text = n.get(t, "/metrics")
		for _, contract := range []string{"relay", "taskflow", "fetchbox_task", "forgerun",
			"images"} {
			if !strings.Contains(text, contract+"_queue_jobs{") {
				return false
			}
		}
		return true
	})
	names := map[string]bool{"up": true} // which Prometheus itself makes
	for _, m := range sampleName.FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	labels := map[string]bool{"__name__": true, "job": true, "instance": true}
	for _, m := range promLabel.FindAllStringSubmatch(text, -1) {
		labels[m[1]] = true
	}
	for _, e := range expressions(t) {
		if problem := unknownName(e, names, labels); problem != "" {
			t.Errorf("%s in %s", problem, e)
		}
	}
	for e, want := range map[string]string{ // the check finds what is wrong
		`sum(rate(relay_fetched[5m]))`:                  "no metric relay_fetched",
		`max({__name__=~"relay_queue_jobs|x_y"})`:       "no metric x_y",
		`relay_queue_jobs{phases="ready"}`:              "no label phases",
		`sum by (contract, queues) (relay_queue_jobs)`:  "no label queues",
		`sum by (contract, queue) (relay_queue_jobs{})`: ""} {
		if got := unknownName(e, names, labels); got != want {
			t.Errorf("%s: %q, want %q", e, got, want)
		}
	}
}

// unknownName returns what an expression names that is not there, "" for nothing.
func unknownName(e string, names, labels map[string]bool) string {
	for _, m := range promRegexp.FindAllStringSubmatch(e, -1) {
		for alternative := range strings.SplitSeq(m[1], "|") {
			if !matchesAny(alternative, names) {
				return "no metric " + alternative
			}
		}
	}
	for _, m := range promLabel.FindAllStringSubmatch(e, -1) {
		if !labels[m[1]] {
			return "no label " + m[1]
		}
	}
	for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(e, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			if !labels[label] && label != "le" {
				return "no label " + label
			}
		}
	}
	for _, name := range promName.FindAllString(
		promWords.ReplaceAllString(promGroups.ReplaceAllString(e, " "), " "), -1) {
		if !names[name] {
			return "no metric " + name
		}
	}
	return ""
}

func matchesAny(pattern string, names map[string]bool) bool {
	full := regexp.MustCompile("^(?:" + pattern + ")$")
	for name := range names {
		if full.MatchString(name) {
			return true
		}
	}
	return false
}

// expressions returns all of PromQL in this folder.
func expressions(t *testing.T) []string {
	t.Helper()
	var all []string
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(mustRead(t, "grafana/millrace.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	panels := len(all)
	for _, r := range alertRules(t) {
		all = append(all, r.Expr)
	}
	if panels == 0 || len(all) == panels {
		t.Fatalf("found %d expressions of the dashboard, %d in all", panels, len(all))
	}
	return append(all, scalingQuery(t))
}

// TestAlerts: among the tests of the rules each alert has one in which it is raised and one in
// which it is not, and Prometheus takes its settings. TestPrometheusOfThePage runs the tests.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tests := mustRead(t, "prometheus/alerts_test.yml")
	for _, r := range alertRules(t) {
		cases := strings.Split(tests, "- alertname: "+r.Alert+"\n")[1:]
		raised, silent := 0, 0
		for _, c := range cases {
			if strings.HasPrefix(strings.TrimSpace(strings.SplitAfterN(c, "\n", 2)[1]),
				"exp_alerts: []") {
				silent++
			} else {
				raised++
			}
		}
		if raised == 0 || silent == 0 {
			t.Errorf("%s has %d tests that raise it and %d that do not", r.Alert, raised, silent)
		}
	}
	program(t, "promtool")
	mustShell(t, ".", "promtool check config --syntax-only compose/prometheus.yml")
}

// maxImage is how many bytes a registry may keep of the image.
const maxImage = 40_000_000

// TestImageSize: what a registry keeps of the image is mostly the compressed binary.
// TestImageInPodman has all of it.
func TestImageSize(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(mustBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, compressed %d", len(text), compressed.Len())
	if compressed.Len() > maxImage {
		t.Errorf("the binary has %d bytes when it is compressed", compressed.Len())
	}
}
