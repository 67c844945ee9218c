package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine is where the figures come from; figures without it say nothing.
type Machine struct {
	CPU     string        `json:"cpu"`
	Cores   int           `json:"cores"`
	System  string        `json:"system"`
	Go      string        `json:"go"`
	Load    string        `json:"load_average"`
	Fsync   time.Duration `json:"fsync_median_ns"`
	Started time.Time     `json:"started"`
}

// inspectMachine looks at the machine before the load; dir is where the files of
// SQLite and Redis will be.
func inspectMachine(dir string) Machine {
	return Machine{
		CPU:   cpuModel(),
		Cores: runtime.GOMAXPROCS(0),
		System: runtime.GOOS + "/" + runtime.GOARCH + " " +
			firstWord("/proc/sys/kernel/osrelease"),
		Go:      runtime.Version(),
		Load:    firstWord("/proc/loadavg"),
		Fsync:   fsyncMedian(dir),
		Started: time.Now().UTC().Truncate(time.Second),
	}
}

func (m Machine) String() string {
	fsync := "unknown"
	if m.Fsync > 0 {
		fsync = m.Fsync.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%s, %d cores, %s, %s, load %s before the start, fsync %s",
		m.CPU, m.Cores, m.System, m.Go, m.Load, fsync)
}

func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func firstWord(path string) string {
	text, err := os.ReadFile(path)
	words := strings.Fields(string(text))
	if err != nil || len(words) == 0 {
		return "unknown"
	}
	return words[0]
}

// ticksPerSecond is in what the kernel counts the processor time of a process.
const ticksPerSecond = 100

// processorTime reads how much processor time a process has used, in hundredths of a second.
func processorTime(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The name is in brackets and may have spaces. User and system time are the 12th and 13th
	// members behind it.
	members := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(members) < 13 {
		return 0, fmt.Errorf("%s has %d members", path, len(members))
	}
	var ticks uint64
	for _, member := range members[11:13] {
		n, err := strconv.ParseUint(member, 10, 63)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// fsyncMedian times the append of one page and its sync. A few microseconds mean
// that the folder is in memory, and durable figures from there are worthless.
func fsyncMedian(dir string) time.Duration {
	file, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0
	}
	defer file.Close()
	page := make([]byte, 4096)
	var took []time.Duration
	for range 50 {
		started := time.Now()
		if _, err := file.Write(page); err != nil {
			return 0
		}
		if err := file.Sync(); err != nil {
			return 0
		}
		took = append(took, time.Since(started))
	}
	return percentilesOf(took).P50
}
