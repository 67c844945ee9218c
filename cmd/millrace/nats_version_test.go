package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// serveOldNATS answers the handshake of NATS as a server of the version does, and nothing else.
func serveOldNATS(t *testing.T, version string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintf(conn, "INFO {\"server_id\":\"old\",\"version\":%q,\"proto\":1,\"headers\":true,\"jetstream\":true,\"max_payload\":1048576}\r\n", version)
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "PING") {
						fmt.Fprint(conn, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return "nats://" + listener.Addr().String()
}

// A NATS server that is too old is refused at the start, by its version; the README says which is
// asked for, and that one node needs none.
func TestOldNATS(t *testing.T) {
	t.Parallel()
	code, _, errs := runCommand(t, nil, "serve", "--set", "listen=127.0.0.1:0", "--set",
		"stream.url="+serveOldNATS(t, "2.11.4"))
	if code != cli.ExitUnable || !strings.Contains(errs,
		"the streams need NATS 2.12 or newer, and the server is 2.11.4") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if readme := documents(t)["README.md"]; !strings.Contains(readme, "NATS 2.12 or newer") ||
		!strings.Contains(readme, "NATS embedded") {
		t.Error("the README does not say which NATS is asked for, or that it is embedded")
	}
}
