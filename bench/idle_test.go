package main

import (
	"io"
	"strings"
	"testing"
)

// All of it runs, for a moment.
func TestIdle(t *testing.T) {
	t.Parallel()
	onWorlds(t, "idle", []string{"-settle", "0s", "-time", "1s", "-queued", "300",
		"-nats"}, func(t *testing.T, out string) {
		if !strings.Contains(out, " ms of processor time, ") || strings.Contains(out, " 0.0 MB") {
			t.Errorf("the report is:\n%s", out)
		}
	})
}

func TestIdleFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-settle", "-1s"}, {"-time", "0s"}, {"-on", "mysql"},
		{"-max-time", "0s"}, {"-queued", "-1"}} {
		if _, err := parseIdle(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
}
