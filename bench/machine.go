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

// inspectMachine looks at the machine before the load; dir is where the files of SQLite and Redis
// will be.
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

// processStat is what the kernel says of a process: its parent, and the processor time that it and
// those of its children that have ended have used, in hundredths of a second.
type processStat struct {
	parent        int
	own, children time.Duration
}

func readProcess(pid int) (p processStat, err error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	// The name is in brackets and may have spaces. Behind it the parent is the second member, user
	// and system time are the 12th and 13th, and those of children the next two.
	members := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(members) < 15 {
		return p, fmt.Errorf("%s has %d members", path, len(members))
	}
	numbers := make([]int64, 5)
	for i, at := range []int{1, 11, 12, 13, 14} {
		if numbers[i], err = strconv.ParseInt(members[at], 10, 64); err != nil {
			return p, err
		}
	}
	ticks := func(n int64) time.Duration { return time.Duration(n) * time.Second / ticksPerSecond }
	return processStat{parent: int(numbers[0]), own: ticks(numbers[1] + numbers[2]),
		children: ticks(numbers[3] + numbers[4])}, nil
}

// processorTime reads how much processor time a process has used.
func processorTime(pid int) (time.Duration, error) {
	p, err := readProcess(pid)
	return p.own, err
}

// familyTime is the processor time of a process and of all children that it has or had.
func familyTime(pid int) (time.Duration, error) {
	p, err := readProcess(pid)
	if err != nil {
		return 0, err
	}
	total := p.own + p.children
	processes, err := filepath.Glob("/proc/[0-9]*")
	for _, path := range processes {
		id, _ := strconv.Atoi(filepath.Base(path))
		child, err := readProcess(id)
		if err != nil || child.parent != pid {
			continue // one that has ended in between counts among the children of the next time
		}
		total += child.own
	}
	return total, err
}

// fsyncMedian times the append of one page and its sync. A few microseconds mean that the folder is
// in memory, and durable figures from there are worthless.
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
