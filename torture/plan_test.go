package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestAgain: the command that repeats a run is the plan of that run, whatever its flags are.
func TestAgain(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{
		"-seed 7",
		"-seed 7 -load 3s -wait 2m -points all -rounds 20",
		"-seed 7 -store postgres -nodes 2 -only failover -mode cut -pause 1s -batch 9 " +
			"-postgres postgres://a:b@h/d?sslmode=disable&connect_timeout=1",
		"-seed 7 -bug unsynced -s3 /a/versitygw's",
		"-seed 7 -store postgres -pgbouncer -nodes 3 -only pgbouncer -mode frozen",
		"-seed 7 -s3 versitygw -only streams-wiped -mode emptied",
	} {
		want, _, err := readPlan(strings.Fields(flags), io.Discard)
		if err != nil {
			t.Fatal(flags, err)
		}
		command, found := strings.CutPrefix(want.again(), "go run ./torture ")
		if !found {
			t.Fatalf("%s is repeated by %s", flags, want.again())
		}
		words, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output()
		if err != nil {
			t.Fatal(command, err)
		}
		got, _, err := readPlan(strings.Split(strings.TrimSpace(string(words)), "\n"), io.Discard)
		if err != nil || got != want {
			t.Errorf("%s is repeated by %s, which is %+v, %v", flags, command, got, err)
		}
	}
}
