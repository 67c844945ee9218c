package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal; what is written to the second end is read from the first.
func openTerminal(t *testing.T) (ptmx, pts *os.File) {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ptmx.Close() })
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	pts, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pts.Close() })
	return ptmx, pts
}

// On a terminal serve says what it is, where its data is, what is open, and what to try.
func TestServeOnATerminal(t *testing.T) {
	t.Parallel()
	near, far := openTerminal(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(mustMillrace(t), "serve", "--set", "data_dir=data", "--set",
		"listen=127.0.0.1:0", "--set", "log.level=warn")
	c.Dir, c.Stdout = dir, far
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	var output strings.Builder
	chunks := make(chan string)
	go func() {
		defer close(chunks)
		chunk := make([]byte, 4096)
		for {
			n, err := near.Read(chunk)
			if err != nil {
				return
			}
			chunks <- string(chunk[:n])
		}
	}()
	pollUntil(t.Fatalf, "the last line", func() bool {
		select {
		case chunk := <-chunks:
			output.WriteString(chunk)
		default:
		}
		return strings.Contains(output.String(), "Ctrl-C")
	})
	text := strings.ReplaceAll(output.String(), "\r\n", "\n")
	data := regexp.QuoteMeta(filepath.Join(dir, "data"))
	if !regexp.MustCompile(`^millrace \S.* listening on http://127\.0\.0\.1:\d+

  data    ` + data + `
  store   sqlite \(` + data + `/millrace\.db\)
  serves  forgerun, images, taskflow, fetchbox, relay
  open    without a token: images, taskflow, fetchbox, relay, /worker, /operators, /v1/clients \(to this machine alone\)
  docs    http://127\.0\.0\.1:\d+/docs
  console http://127\.0\.0\.1:\d+/console/login\?code=[A-Z2-7]{26}
  try     echo '{"to":"a@example\.com"}' \| millrace enqueue --server http://127\.0\.0\.1:\d+ --queue mail --timeout 30s
          millrace work --server http://127\.0\.0\.1:\d+ mail -- cat
  stop    Ctrl-C
*$`).MatchString(text) {
		t.Errorf("it says\n%s", text)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// A start is one line of the log, with all that is known of the node.
func TestStartIsOneLine(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := launchIn(t, dir, "--set", "log.format=json", "--set", "log.level=info", "--set",
		"taskflow.listen=127.0.0.1:0", "--set", "operator.token=secret")
	if err := s.terminate(); err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, line := range s.stderr.Lines(t, map[string]any{"level": "INFO"}) {
		messages = append(messages, fmt.Sprint(line["msg"]))
		if line["msg"] != "started" {
			continue
		}
		address := fmt.Sprint(line["address"])
		if !strings.HasPrefix(address, s.url+",http://127.0.0.1:") || line["data"] != dir {
			t.Errorf("got %v", line)
		}
		for _, key := range []string{"version", "node", "store", "serves", "open"} {
			if line[key] == nil || line[key] == "" {
				t.Errorf("the line has no %s: %v", key, line)
			}
		}
	}
	if want := []string{"started", "stopping", "stopped"}; !slices.Equal(messages, want) {
		t.Errorf("the log has %q, want %q", messages, want)
	}
}
