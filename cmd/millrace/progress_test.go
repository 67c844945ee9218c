package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// Commands that wait say so again and again, also where nothing happens and nobody has a terminal.
func TestWaitingIsNotSilent(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		<-over
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(over) })
	idle := launchNode(t, "data", "--no-workers")
	s := launchNode(t, "data")
	dir := t.TempDir()
	mustWriteFile(t, dir, "picture.jpg", largeJPEG())
	mustWriteFile(t, dir, "graph.json",
		[]byte(`{"jobs":[{"ref":"a","queue":"q"},{"ref":"b","queue":"q","depends_on":["a"]}]}`))
	for name, tt := range map[string]struct {
		args []string
		line string
		end  string // in the last line, after an interruption
	}{
		"graph submit": {[]string{"graph", "submit", "--wait", "--server", s.url,
			filepath.Join(dir, "graph.json")},
			`(?m)^graph: 0 of 2 jobs ended, 1 READY, 1 PENDING; no worker has taken a job of queue "q" yet \(0 %\), \d`,
			"interrupted; the jobs go on, to wait for them again: millrace graph show --wait "},
		"fetch": {[]string{"fetch", "--server", s.url, "--url", silent.URL},
			`(?m)^fetch: 0 of 1 done, 0 failed \(0 %\), \d`,
			"the jobs go on; to follow them: millrace fetch --job "},
		"submit": {[]string{"fetch", "--server", silent.URL, "--url", silent.URL},
			`(?m)^submit: 0 %, \d`, "interrupted"},
		"images put": {[]string{"images", "put", "--server", idle.url,
			filepath.Join(dir, "picture.jpg")},
			`(?m)^images: picture.jpg is queued, no worker has taken it yet \(0 %\), \d`, "uploaded: "},
		"load": {[]string{"simulate", "--server", idle.url, "--rate", "0.01", "--mix",
			"SUCCESS_FAST", "--duration", "10m"},
			`(?m)^load: 1 scenario started, 0 ended \(0 % of the time\), \d`, ""},
		"settle": {[]string{"simulate", "--server", idle.url, "--rate", "1", "--mix",
			"SUCCESS_FAST", "--duration", "1s"},
			`(?m)^settle: \d scenarios? started, 0 ended \(0 % of the scenarios\), \d`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output := filepath.Join(t.TempDir(), "stderr")
			file, err := os.Create(output)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			c := exec.Command(mustMillrace(t), tt.args...)
			c.Stderr = file
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			lines, text := regexp.MustCompile(tt.line), []byte(nil)
			pollUntil(func(format string, args ...any) {
				t.Errorf(format+": %s", append(args, text)...)
			}, "two lines", func() bool {
				text, err = os.ReadFile(output)
				return err == nil && len(lines.FindAll(text, 2)) == 2
			})
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			hang := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
			defer hang.Stop()
			if _ = c.Wait(); c.ProcessState.ExitCode() != cli.ExitInterrupted {
				t.Errorf("it ended with %v", c.ProcessState)
			}
			if text, err = os.ReadFile(output); err != nil ||
				!strings.Contains(string(text), tt.end) {
				t.Errorf("%v: the output lacks %q: %s", err, tt.end, text)
			}
		})
	}
}
