package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queueNameWatch notices that nobody feeds the queues of a worker while another contract has a
// queue of the same name, which is then most likely the one that was meant. It reads the metrics of
// the server, where it may.
type queueNameWatch struct {
	metrics  string // URL
	http     *http.Client
	contract string
	queues   []string
	log      *slog.Logger
	warned   bool
}

const (
	queueNameInterval = 10 * time.Second
	queueNameTimeout  = 2 * time.Second
	maxMetricsBytes   = 16 << 20
)

// run looks now and then until a job has been taken.
func (n *queueNameWatch) run(ctx context.Context, g *pollGate) {
	tick := time.NewTicker(queueNameInterval)
	defer tick.Stop()
	for !n.warned && g.jobCount() == 0 {
		select {
		case <-tick.C:
			n.check(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// look looks once. It says nothing where the metrics are not to be had.
func (n *queueNameWatch) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queueNameTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.metrics, nil)
	if err != nil {
		return
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	n.warn(queueDepths(io.LimitReader(resp.Body, maxMetricsBytes)))
}

// tell warns of each queue without jobs whose name another contract has jobs under.
func (n *queueNameWatch) warn(depths map[queueName]int) {
	for _, queue := range n.queues {
		if depths[queueName{n.contract, queue}] > 0 {
			continue
		}
		for _, other := range workContracts {
			jobs := depths[queueName{other, queue}]
			if jobs == 0 || other == n.contract {
				continue
			}
			n.warned = true
			n.log.Warn(fmt.Sprintf(
				"the queue %q of %s has no jobs, but that of %s has %d; for those use --contract %s",
				queue, n.contract, other, jobs, other))
		}
	}
}

// queueName names a queue on a server.
type queueName struct{ contract, queue string }

// depthLine is a line of the metrics CONTRACT_queue_jobs of one phase.
var depthLine = regexp.MustCompile(
	`^[a-z_]+_queue_jobs\{(?:component="[^"]*",)?contract="([a-z]+)",phase="[a-z]+",queue="((?:[^"\\]|\\.)*)"\} ([0-9.e+]+)$`)

// queueDepths reads how many jobs each queue has that are not over.
func queueDepths(metrics io.Reader) map[queueName]int {
	depths := map[queueName]int{}
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		match := depthLine.FindStringSubmatch(lines.Text())
		if match == nil || !slices.Contains(workContracts, match[1]) {
			continue
		}
		jobs, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			continue
		}
		depths[queueName{match[1], unescapeLabel.Replace(match[2])}] += int(jobs)
	}
	return depths
}

// unescapeLabel gives the value of a label as it was before it was written.
var unescapeLabel = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
