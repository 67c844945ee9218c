package outside

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// fauxqsVersion is the last version that runs on the Node of Debian.
const fauxqsVersion = "1.9.2"

// SQSServer is a server that speaks NewSQS, with one queue.
type SQSServer struct {
	URL string // its endpoint

	tb      testing.TB
	address string
	init    string
	process *process
}

// NewSQS starts a server whose queue hands a message out again when it has not been settled within
// visible, ends it with the test, and sets the environment that clients read their keys from; so
// such a test cannot be parallel.
func NewSQS(tb testing.TB, visible time.Duration) *SQSServer {
	tb.Helper()
	s := &SQSServer{tb: tb, address: freeAddress(tb),
		init: filepath.Join(tb.TempDir(), "init.json")}
	s.URL = "http://" + s.address
	text, _ := json.Marshal(map[string]any{"queues": []any{map[string]any{"name": "images",
		"attributes": map[string]string{"VisibilityTimeout": fmt.Sprint(int(visible.Seconds()))}}}})
	if err := os.WriteFile(s.init, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	s.Restart()
	tb.Setenv("AWS_ACCESS_KEY_ID", "test")
	tb.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	return s
}

// Restart starts a killed server anew on its port, with an empty queue.
func (s *SQSServer) Restart() {
	s.tb.Helper()
	_, port, _ := net.SplitHostPort(s.address)
	cmd := exec.Command("node", sqsScript(s.tb))
	cmd.Env = append(os.Environ(), "FAUXQS_PORT="+port, "FAUXQS_INIT="+s.init,
		"FAUXQS_HOST=localhost")
	s.process, _ = startProcess(s.tb, "listening", cmd)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if answer, err := http.Get(s.URL + "/health"); err == nil {
			answer.Body.Close()
			return
		}
		<-tick.C
	}
	s.tb.Fatal("the SQS server does not answer")
}

// Kill ends the server as a crash does.
func (s *SQSServer) Kill() { s.process.kill() }

// Setting is images.queue_url for the server.
func (s *SQSServer) Setting() string {
	_, port, _ := net.SplitHostPort(s.address)
	return "awssqs://sqs.us-east-1.localhost:" + port +
		"/000000000000/images?region=us-east-1&endpoint=" + s.URL
}

// sqsScript gives the script of the server.
func sqsScript(tb testing.TB) string {
	tb.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	dir := filepath.Join(programDir(tb), "fauxqs-"+fauxqsVersion)
	file := filepath.Join(dir, "node_modules", "fauxqs", "dist", "server.js")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		tb.Skipf("skipped: there is no %s", file)
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--prefix", dir,
		"fauxqs@"+fauxqsVersion)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if text, err := install.CombinedOutput(); err != nil {
		tb.Fatalf("npm install fauxqs@%s: %v\n%s", fauxqsVersion, err, text)
	}
	return file
}
