package outside

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The keys of the S3 server.
const (
	s3Access = "millrace-test"
	s3Secret = "millrace-test-secret"
)

// S3Server is an S3 server whose objects are files.
type S3Server struct {
	URL  string // its endpoint
	Root string // its buckets are directories here

	tb      testing.TB
	program string
	process *process
}

// NewS3 starts a server with buckets and ends it with the test.
func NewS3(tb testing.TB, buckets ...string) *S3Server {
	tb.Helper()
	s := &S3Server{Root: tb.TempDir()}
	for _, b := range buckets {
		if err := os.Mkdir(filepath.Join(s.Root, b), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	address := freeAddress(tb)
	s.URL = "http://" + address
	s.tb, s.program = tb, s3Program().path(tb)
	s.start(address)
	setKeys(tb)
	return s
}

// setKeys sets the environment from which clients read their keys. All servers take the same ones,
// so tests that run beside each other may set them, and they stay.
func setKeys(tb testing.TB) {
	tb.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": s3Access,
		"AWS_SECRET_ACCESS_KEY": s3Secret, "AWS_REGION": "us-east-1"} {
		if err := os.Setenv(name, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// start starts the server and waits until it answers.
func (s *S3Server) start(address string) {
	s.tb.Helper()
	cmd := exec.Command(s.program, "--port", address, "--access", s3Access, "--secret", s3Secret,
		"posix", s.Root)
	s.process, _ = startProcess(s.tb, "service listening on", cmd)
	waitForAnswer(s.tb, "S3", s.URL)
}

// Setting is the setting objects.url for the server.
func (s *S3Server) Setting() string {
	return "s3://?region=us-east-1&use_path_style=true&endpoint=" + s.URL
}

// Kill ends the server as a crash does. Uploads under way are lost.
func (s *S3Server) Kill() { s.process.kill() }

// Restart starts a killed server on the port it had.
func (s *S3Server) Restart() {
	s.tb.Helper()
	s.start(strings.TrimPrefix(s.URL, "http://"))
}
