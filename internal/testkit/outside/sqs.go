package outside

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// SQSServer is a server that speaks the protocol of SQS, with one queue. Its messages are in memory
// and are lost when it is killed.
type SQSServer struct {
	URL string // its endpoint

	tb      testing.TB
	address string
	init    string
	process *process
}

// NewSQS starts a server whose queue makes a message visible again when it was not deleted within
// visible, and ends it with the test. It sets the environment from which clients read their keys,
// so the test cannot be parallel.
func NewSQS(tb testing.TB, visible time.Duration) *SQSServer {
	tb.Helper()
	s := &SQSServer{
		tb:      tb,
		address: freeAddress(tb),
		init:    filepath.Join(tb.TempDir(), "init.json"),
	}
	s.URL = "http://" + s.address
	visibility := map[string]string{"VisibilityTimeout": fmt.Sprint(int(visible.Seconds()))}
	text, _ := json.Marshal(map[string]any{"queues": []any{
		map[string]any{"name": "images", "attributes": visibility},
	}})
	if err := os.WriteFile(s.init, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	s.Restart()
	setKeys(tb)
	return s
}

// Restart starts a killed server on the port it had, with an empty queue.
func (s *SQSServer) Restart() {
	s.tb.Helper()
	_, port, _ := net.SplitHostPort(s.address)
	cmd := exec.Command("node", fauxqsPackage.file(s.tb, "dist", "server.js"))
	cmd.Env = append(os.Environ(), "FAUXQS_PORT="+port, "FAUXQS_INIT="+s.init,
		"FAUXQS_HOST=localhost")
	s.process, _ = startProcess(s.tb, "listening", cmd)
	waitForAnswer(s.tb, "SQS", s.URL+"/health")
}

// Kill ends the server as a crash does.
func (s *SQSServer) Kill() { s.process.kill() }

// Setting is the setting images.queue_url for the server.
func (s *SQSServer) Setting() string {
	_, port, _ := net.SplitHostPort(s.address)
	return "awssqs://sqs.us-east-1.localhost:" + port +
		"/000000000000/images?region=us-east-1&endpoint=" + s.URL
}
