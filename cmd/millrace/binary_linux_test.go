package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestReleaseBinary: after it, less of the binary is resident, and what is needed comes back. Other
// tests of the process read it meanwhile.
func TestReleaseBinary(t *testing.T) {
	before := residentOfFiles(t)
	if err := releaseBinary(); err != nil {
		t.Fatal(err)
	}
	if after := residentOfFiles(t); after >= before {
		t.Errorf("%d kB of files are resident, %d before", after, before)
	}
}

// residentOfFiles returns how many kB of mapped files the process has in memory.
func residentOfFiles(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	line, _, _ := strings.Cut(rest, "\n")
	kB, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(line, "kB")))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
