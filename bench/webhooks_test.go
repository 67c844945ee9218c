package main

import (
	"io"
	"strings"
	"testing"
)

// All of it runs, small.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	onWorlds(t, "webhooks", []string{"-n", "40", "-clients", "4", "-rounds", "1"},
		func(t *testing.T, out string) {
			if !strings.Contains(out, "jobs/s without a webhook ") {
				t.Errorf("the report is:\n%s", out)
			}
		})
}

func TestWebhooksFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-n", "0"}, {"-batch", "0"}, {"-on", "mysql"},
		{"-max-time", "0s"}} {
		if _, err := parseWebhooks(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
}
