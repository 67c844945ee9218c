package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// occupiedAddress is an address that another process has.
func occupiedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

// unreachableAddress is one that nobody listens on.
func unreachableAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// A start that fails says why in one line, with the setting and where that points, and makes
// nothing.
func TestFailedStartMakesNothing(t *testing.T) {
	t.Parallel()
	taken, unreachable, folder := occupiedAddress(t), unreachableAddress(t), t.TempDir()
	mustWriteFile(t, folder, "text", []byte("no certificate"))
	text := filepath.Join(folder, "text")
	for name, c := range map[string]struct {
		set      []string
		wantText []string
	}{
		"listen": {[]string{"listen=" + taken},
			[]string{"the address " + taken + " is in use", "set listen to"}},
		"listen of a contract": {[]string{"relay.listen=" + taken},
			[]string{"the address " + taken + " is in use", "set relay.listen to"}},
		"stream.listen": {[]string{"stream.listen=" + taken},
			[]string{"the address " + taken + " is in use", "set stream.listen to"}},
		"one address for two": {[]string{"listen=" + unreachable, "stream.listen=" + unreachable},
			[]string{"the address " + unreachable + " is in use", "set stream.listen to"}},
		"stream.url": {[]string{"stream.url=nats://" + unreachable},
			[]string{"stream.url (" + unreachable +
				"): the server of the streams cannot be reached (connection refused)\n"}},
		"an old stream.url": {[]string{"stream.url=" + serveOldNATS(t, "2.11.4")},
			[]string{"stream.url (", "NATS 2.12"}},
		"store": {[]string{"store=postgres://u:hunter2@" + unreachable + "/x"},
			[]string{"(setting store) cannot be opened: the store is unavailable (" + unreachable +
				": connection refused)\n"}},
		"TLS without files": {[]string{"tls.cert=" + text + "0", "tls.key=" + text + "0"},
			[]string{"tls.cert, tls.key", text + "0"}},
		"TLS with other text": {[]string{"tls.cert=" + text, "tls.key=" + text},
			[]string{"tls.cert, tls.key"}},
		"objects.url": {[]string{"objects.url=s3://?region=eu-west-1&profile=nobody"},
			[]string{"objects.url", "nobody"}},
		"images.queue_url": {[]string{"images.queue_url=awssqs://x/y?nonsense=1"},
			[]string{"images.queue_url", "nonsense"}},
		"pepper": {[]string{"secrets.pepper_file=" + text + "0"},
			[]string{"secrets.pepper_file", text + "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			args := []string{"serve", "--set", "data_dir=" + dir, "--set", "listen=127.0.0.1:0"}
			for _, pair := range c.set {
				args = append(args, "--set", pair)
			}
			code, out, errs := runCommand(t, nil, args...)
			if code != cli.ExitUnable || out != "" || strings.Count(errs, "\n") != 1 ||
				strings.Contains(errs, "hunter2") {
				t.Errorf("exit code %d, output %q: %s", code, out, errs)
			}
			for _, part := range c.wantText {
				if !strings.Contains(errs, part) {
					t.Errorf("it does not say %q: %s", part, errs)
				}
			}
			if files, err := os.ReadDir(dir); !os.IsNotExist(err) {
				t.Errorf("it made %s with %v (%v)", dir, files, err)
			}
		})
	}
}
