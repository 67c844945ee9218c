package main

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestFetchBoxStreams asks the streams of a server how long they keep what.
func TestFetchBoxStreams(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	dir := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		name       string
		logs, dead time.Duration
	}{
		{"FB-091 FB-092 30 and 90 days", 30 * day, 90 * day},
		{"FB-091 FB-092 as the settings say, on streams that are there", 5 * day, 6 * day},
	} {
		t.Run(c.name, func(t *testing.T) {
			free, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := free.Addr().String()
			free.Close()
			args := []string{"--set", "stream.listen=" + address}
			if c.logs != 30*day {
				args = append(args, "--set", fmt.Sprint("fetchbox.logs_retention=", c.logs),
					"--set", fmt.Sprint("fetchbox.dlq_retention=", c.dead))
			}
			s := launchFetchBox(t, dir, args...)
			conn, err := nats.Connect("nats://" + address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			js, err := jetstream.New(conn)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]time.Duration{"JOBS_LOGS": c.logs,
				"JOBS_DLQ": c.dead} {
				found, err := js.Stream(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if got := found.CachedInfo().Config.MaxAge; got != want {
					t.Errorf("%s keeps messages for %s, want %s", name, got, want)
				}
			}
			if err := s.terminate(); err != nil {
				t.Error(err)
			}
		})
	}
}
