package work

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// queueNameWatch warns when the queues of a worker have no jobs while another contract has jobs in
// a queue of the same name, which is then most likely the queue that was meant. It reads the
// metrics of the server, and gives no warning where it may not read them.
type queueNameWatch struct {
	metrics  string // URL
	http     *http.Client
	contract string
	all      []string // the names of all contracts
	queues   []string
	log      *slog.Logger
	warned   bool
}

// The limits of reading the metrics.
const (
	queueNameInterval = 10 * time.Second // between two readings
	queueNameTimeout  = 2 * time.Second  // of one reading
	maxMetricsBytes   = 16 << 20
)

// run checks every queueNameInterval, until it has warned or a job was claimed.
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

// check reads the metrics once and warns if that is due.
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

// warn warns of each queue without jobs if another contract has jobs in a queue of that name.
func (n *queueNameWatch) warn(depths map[queueName]int) {
	for _, queue := range n.queues {
		if depths[queueName{n.contract, queue}] > 0 {
			continue
		}
		for _, other := range n.all {
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

// depthLine matches a line of the metrics CONTRACT_queue_jobs: the jobs of a queue in one phase.
var depthLine = regexp.MustCompile(
	`^[a-z_]+_queue_jobs\{(?:component="[^"]*",)?contract="([a-z]+)",phase="[a-z]+",queue="((?:[^"\\]|\\.)*)"\} ([0-9.e+]+)$`)

// queueDepths reads from metrics how many jobs each queue has that have not ended.
func queueDepths(metrics io.Reader) map[queueName]int {
	depths := map[queueName]int{}
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		match := depthLine.FindStringSubmatch(lines.Text())
		if match == nil {
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

// unescapeLabel undoes the escapes in the value of a label.
var unescapeLabel = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
