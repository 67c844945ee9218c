package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// degradedMessage is what the log says of a part that is.
const degradedMessage = "a part is degraded; calls that need it wait or are refused"

// countLogged counts the lines of the log with a message about a part.
func (s *launchedServer) countLogged(t *testing.T, message, part string) int {
	t.Helper()
	return len(s.stderr.Lines(t, map[string]any{"msg": message, "part": part}))
}

// TestOutagesAreLoggedOnce: whatever the number of workers, loops and requests that meet it, an
// outage is one line and its end another; every line of standard error is JSON; and the lines
// say where the part is and which setting says so.
func TestOutagesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	postgres, nats, s3 := outside.NewPostgres(t), outside.NewNATS(t, ""),
		outside.NewS3(t, "millrace")
	binary := mustMillrace(t)
	store := postgres.Database("mine")
	s, err := launch(binary, filepath.Join(t.TempDir(), "data"), os.Environ(), "--set",
		"log.format=json", "--set", "store="+store,
		"--set", "stream.url="+nats.URL, "--set", "objects.url="+s3.Setting(), "--set",
		"forgerun.workers=20", "--set", "forgerun.log_requests=false")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	for _, c := range []struct {
		part, setting, address string
		begin, end             func()
		request                requestCheck
	}{
		{"store", "store", store[strings.Index(store, "@")+1 : strings.LastIndex(store, "/")],
			postgres.Stop, func() {
				postgres.Start()
			},
			requestCheck{method: "POST", path: "/api/v1/jobs", body: `{"name":"n","queue":"q"}`}},
		{"streams", "stream.url", strings.TrimPrefix(nats.URL, "nats://"), nats.Kill, nats.Restart,
			requestCheck{method: "GET", path: "/operators/health"}},
		{"objects", "objects.url", strings.TrimPrefix(s3.URL, "http://"), s3.Kill, s3.Restart,
			requestCheck{method: "GET", path: "/operators/health"}},
	} {
		t.Run(c.part, func(t *testing.T) {
			c.begin()
			pollUntil(t.Fatalf, "the outage of "+c.part, func() bool {
				status, _ := c.request.send(t, s.url)
				return status >= 500 && s.countLogged(t, degradedMessage, c.part) > 0
			})
			// requests, scrapes and loops that meet it say nothing more
			testkit.RunConcurrently(20, func(int) struct{} {
				c.request.send(t, s.url)
				requestCheck{method: "GET", path: "/metrics"}.send(t, s.url)
				return struct{}{}
			})
			c.end()
			pollUntil(t.Fatalf, "the end of the outage of "+c.part, func() bool {
				status, _ := c.request.send(t, s.url)
				return status < 300 && s.countLogged(t, "a part works again", c.part) > 0
			})
			where := map[string]any{"part": c.part, "setting": c.setting, "address": c.address}
			if n := len(s.stderr.Lines(t, where)); n != 2 {
				t.Errorf("%d lines about %s\n%s", n, c.part, s.stderr.String())
			}
		})
	}
	s.checkLogOfThePage(t)
	status, _ := requestCheck{method: "GET", path: "/health/ready"}.send(t, s.url)
	if err := s.terminate(); err != nil || status != http.StatusOK {
		t.Errorf("%d: %v", status, err)
	}
	for _, level := range []string{"WARN", "ERROR"} { // Lines fails where a line is not JSON
		for _, line := range s.stderr.Lines(t, map[string]any{"level": level}) {
			if line["msg"] != degradedMessage {
				t.Errorf("beside the outages the log has %v", line)
			}
		}
	}
}

// checkLogOfThePage wants the lines of the log that docs/operating.md shows to be in the log once,
// with the same members and other addresses, times and errors.
func (s *launchedServer) checkLogOfThePage(t *testing.T) {
	t.Helper()
	member, count := regexp.MustCompile(`(\w+)=(?:"([^"]*)"|(\S+))`), 0
	for _, block := range codeBlock.FindAllStringSubmatch(documents(t)["docs/operating.md"], -1) {
		if block[1] != "" {
			continue
		}
		for line := range strings.Lines(block[2]) {
			count++
			same, names := map[string]any{}, []string{"time"}
			for _, m := range member.FindAllStringSubmatch(line, -1) {
				names = append(names, m[1])
				if slices.Contains([]string{"level", "msg", "part", "setting"}, m[1]) {
					same[m[1]] = m[2] + m[3]
				}
			}
			slices.Sort(names)
			if found := s.stderr.Lines(t, same); len(found) != 1 ||
				!slices.Equal(slices.Sorted(maps.Keys(found[0])), names) {
				t.Errorf("the log has %v for %s", found, line)
			}
		}
	}
	if count != 2 {
		t.Errorf("the page has %d lines of the log", count)
	}
}

// A start that fails says so in the format of the log, with the setting and the address.
func TestFailedStartInJSON(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	for _, c := range []struct{ setting, address string }{
		{"store=postgres://nobody@127.0.0.1:1/none?sslmode=disable", "127.0.0.1:1"},
		{"stream.url=nats://127.0.0.1:1", "127.0.0.1:1"},
	} {
		s, err := launch(binary, filepath.Join(t.TempDir(), "data"), os.Environ(), "--set",
			"log.format=json", "--set", c.setting)
		if err == nil {
			s.kill()
			t.Fatalf("%s: it starts", c.setting)
		}
		_, output, _ := strings.Cut(err.Error(), "{")
		name, _, _ := strings.Cut(c.setting, "=")
		if !strings.Contains(output, name) || !strings.Contains(output, c.address) ||
			!strings.Contains(output, `"exit_code":3`) {
			t.Errorf("%s: it says %s", c.setting, err)
		}
	}
}
