package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// usageInterval is how often the resource usage of the nodes is sampled.
	usageInterval = 5 * time.Second
	// usageWarm is how long a process may grow at first, and minUsageTime how long it has to run
	// after that to say something.
	usageWarm    = 2 * time.Minute
	minUsageTime = 10 * time.Minute
)

// usage is what a process used at a time.
type usage struct {
	at     time.Duration
	values [3]float64 // by usageNames
}

// usageNames are what is looked at.
var usageNames = [3]string{"MiB of memory", "descriptors", "goroutines"}

// processLife is one process of a node, from its start on.
type processLife struct {
	node, pid int
	began     time.Time
	samples   []usage
}

// growth is how much a process used, and how fast that grew.
type growth struct {
	Node  int           `json:"node"`
	Life  time.Duration `json:"life"`
	Of    string        `json:"of"`
	First float64       `json:"first"` // on the line, at its start
	Last  float64       `json:"last"`
	Hour  float64       `json:"an_hour"`
}

// watchUsage looks at all nodes until ctx ends, and returns the processes that it has seen.
func (r *run) watchUsage(ctx context.Context) (all []*processLife) {
	current := make([]*processLife, len(r.nodes))
	client := &http.Client{Timeout: time.Second}
	for sleep(ctx, usageInterval) {
		for i, n := range r.nodes {
			pid := n.pid()
			if current[i] == nil || current[i].pid != pid {
				current[i] = &processLife{node: i, pid: pid, began: time.Now()}
				all = append(all, current[i])
			}
			u, err := usageOf(client, pid, n.url)
			if err != nil {
				continue // it is down, or frozen
			}
			u.at = time.Since(current[i].began)
			current[i].samples = append(current[i].samples, u)
		}
	}
	return all
}

// pid is the process of the node, which may have ended.
func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Pid
}

// usageOf asks the system and the process itself what it uses.
func usageOf(client *http.Client, pid int, url string) (u usage, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return u, err
	}
	var total, resident int
	if _, err := fmt.Sscan(string(text), &total, &resident); err != nil {
		return u, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return u, err
	}
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	goroutines, err := metricOf(resp.Body, "go_goroutines")
	u.values = [3]float64{float64(resident*os.Getpagesize()) / (1 << 20), float64(len(files)),
		goroutines}
	return u, err
}

// metricOf returns a metric from a page of them.
func metricOf(page io.Reader, name string) (value float64, err error) {
	for lines := bufio.NewScanner(page); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name) {
			return strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// growthOf fits a line to what the longest process of each node used. One that has not run for long
// enough says nothing.
func growthOf(lives []*processLife) (all []growth) {
	longest := map[int]*processLife{}
	for _, l := range lives {
		if best := longest[l.node]; best == nil || l.length() > best.length() {
			longest[l.node] = l
		}
	}
	for node := range len(longest) {
		l := longest[node]
		if l == nil || l.length() < usageWarm+minUsageTime {
			continue
		}
		for i, name := range usageNames {
			all = append(all, l.fit(i, growth{Node: node, Life: l.length(), Of: name}))
		}
	}
	return all
}

// minBoundedLife is how long a process has to run until its last minute is compared with its third.
const minBoundedLife = usageWarm + 2*time.Minute

// checkUsage checks a part of I18. It is a violation if the minimum of descriptors or goroutines in
// the last minute is more than three times the maximum of the third minute, and more than 200 above
// it. Memory is only reported.
func (v *violations) checkUsage(lives []*processLife) {
	for _, l := range lives {
		end := l.length()
		if end < minBoundedLife {
			continue
		}
		for i := 1; i < len(usageNames); i++ {
			first := slices.Max(append(l.between(i, usageWarm, usageWarm+time.Minute), 0))
			last := slices.Min(l.between(i, end-time.Minute, end))
			if first > 0 && last > 3*first && last > first+200 {
				v.add("I18 bounded", "node %d has %.0f %s after %s, and had %.0f in its third minute",
					l.node, last, usageNames[i], end.Round(time.Second), first)
			}
		}
	}
}

// between returns a value of the samples of a time.
func (l *processLife) between(value int, from, to time.Duration) (all []float64) {
	for _, u := range l.samples {
		if from <= u.at && u.at <= to {
			all = append(all, u.values[value])
		}
	}
	return all
}

// length is from the start of a process to the last time that it answered.
func (l *processLife) length() time.Duration {
	if len(l.samples) == 0 {
		return 0
	}
	return l.samples[len(l.samples)-1].at
}

// fit fits a line, by least squares, to a value of the samples after the first minutes.
func (l *processLife) fit(value int, g growth) growth {
	var n, t, v, tt, tv float64
	for _, u := range l.samples {
		if u.at < usageWarm {
			continue
		}
		x, y := u.at.Hours(), u.values[value]
		n, t, v, tt, tv = n+1, t+x, v+y, tt+x*x, tv+x*y
	}
	if width := n*tt - t*t; width > 0 {
		g.Hour = (n*tv - t*v) / width
	}
	at := func(x float64) float64 { return v/n + g.Hour*(x-t/n) }
	g.First, g.Last = at(usageWarm.Hours()), at(l.length().Hours())
	return g
}

// String is a line of the report.
func (g growth) String() string {
	return fmt.Sprintf("node %d in %s: %.1f to %.1f %s, %+.2f an hour", g.Node,
		g.Life.Round(time.Second), g.First, g.Last, g.Of, g.Hour)
}
