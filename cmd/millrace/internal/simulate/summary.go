package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The summary counts what the simulation has done and what the audit has found, for people as text
// and for programs as JSON.

// submitTimes records how long requests that submit took.
type submitTimes struct {
	mu      sync.Mutex
	submits []time.Duration
}

// add records one request.
func (t *submitTimes) add(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.submits = append(t.submits, took)
}

// Latency is the distribution of the times that something took.
type Latency struct {
	What  string        `json:"what"`
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P95   time.Duration `json:"p95_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// newLatency makes the distribution of the times, which it sorts in place. Of no times all are
// zero.
func newLatency(what string, times []time.Duration) Latency {
	l := Latency{What: what, Count: len(times)}
	if len(times) == 0 {
		return l
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[(len(times)-1)*percent/100] }
	l.P50, l.P95, l.P99, l.Max = at(50), at(95), at(99), times[len(times)-1]
	return l
}

// KindCount counts the jobs of one work kind.
type KindCount struct {
	Submits int `json:"submits"`
	// Refused counts refusals that were expected.
	Refused int `json:"refused"`
	// Outcomes counts jobs by outcome, or by state for jobs without one.
	Outcomes map[string]int `json:"outcomes"`
}

// Summary is the result of a simulation. Its JSON members are a promise to scripts: they keep the
// names of the first version, where a scenario was a play and a violation an offence.
type Summary struct {
	Balanced         bool                  `json:"balanced"`
	Interrupted      bool                  `json:"interrupted"`
	Unfinished       int                   `json:"plays_cut_short"`
	Violations       int                   `json:"offences"`
	FirstViolations  []Violation           `json:"first_offences"`
	ViolationsByKind map[string]int        `json:"offences_by_sort"`
	Seed             uint64                `json:"seed"`
	Server           string                `json:"server"`
	Took             time.Duration         `json:"load_ns"`
	Scenarios        int                   `json:"plays"`
	Submits          int                   `json:"submits"`
	Acked            int                   `json:"acknowledged"`
	Refused          int                   `json:"refused_as_due"`
	Late             int                   `json:"refused_late"`
	Jobs             int                   `json:"jobs"`
	Events           int                   `json:"events"`
	Kinds            map[string]*KindCount `json:"kinds"`
	LostRuns         int                   `json:"runs_lost_in_outages"`
	Requeued         int                   `json:"requeued"`
	Requests         int                   `json:"webhook_requests"`
	Accepted         int                   `json:"events_accepted"`
	Repeated         int                   `json:"events_accepted_again"`
	GivenUp          int                   `json:"deliveries_given_up"`
	Pending          int                   `json:"deliveries_kept_pending"`
	Limited          int                   `json:"answers_429"`
	Full             int                   `json:"answers_503"`
	Outages          int                   `json:"outages"`
	OutageTime       time.Duration         `json:"outages_ns"`
	Latencies        []Latency             `json:"latencies"`
}

// maxListedViolations is how many violations a summary lists; it counts all.
const maxListedViolations = 20

// summarize makes the summary. limited and full count the answers 429 and 503.
func (s *simulator) summarize(w *history, v *auditResult, limited, full int) *Summary {
	m := &Summary{Balanced: len(v.violations) == 0 && !w.interrupted, Interrupted: w.interrupted,
		Unfinished: w.unfinished, Violations: len(v.violations), ViolationsByKind: map[string]int{},
		Seed:   s.flags.seed,
		Server: s.flags.remote.Address(s.p), Took: s.loadTime, Scenarios: len(w.submissions),
		Jobs: len(w.observed), Late: v.late, Kinds: map[string]*KindCount{},
		LostRuns: v.lost, Requeued: v.requeued, Repeated: v.repeated, GivenUp: v.givenUp,
		Pending: v.pending, Limited: limited, Full: full,
		Outages: len(w.outages), FirstViolations: v.violations[:min(len(v.violations),
			maxListedViolations)]}
	for _, o := range v.violations {
		m.ViolationsByKind[o.What]++
	}
	for _, o := range w.outages {
		m.OutageTime += o.to.Sub(o.from)
	}
	m.Requests, _ = s.sink.requests()
	m.countKinds(w)
	m.Latencies = s.latencies(w)
	for _, h := range w.receivers {
		for _, receipts := range h.receipts {
			visited := map[string]bool{}
			for _, r := range receipts {
				if r.accepted && !visited[r.eventID] {
					visited[r.eventID] = true
					m.Accepted++
				}
			}
		}
	}
	return m
}

// countKinds counts the requests and the outcomes of each work kind.
func (m *Summary) countKinds(w *history) {
	of := func(kind client.ForgeRunWorkKind) *KindCount {
		c := m.Kinds[string(kind)]
		if c == nil {
			c = &KindCount{Outcomes: map[string]int{}}
			m.Kinds[string(kind)] = c
		}
		return c
	}
	for _, o := range w.submissions {
		for _, one := range o.requests {
			c := of(o.kind.name)
			c.Submits++
			m.Submits++
			switch {
			case one.jobID != "":
				m.Acked++
			case one.code == client.ForgeRunCodeValidationFailed && !one.late:
				c.Refused++
				m.Refused++
			}
		}
	}
	for _, t := range w.observed {
		of(t.job.Kind).Outcomes[cmp.Or(string(t.job.Outcome), string(t.job.State))]++
		if t.report != nil {
			m.Events += len(t.report.Events)
		}
	}
}

// latencies returns the latencies of a simulation. Requests are timed by the clock of this machine,
// starts and schedules by that of the server; webhooks from the server's clock to this machine's,
// which are the same in most simulations.
func (s *simulator) latencies(w *history) []Latency {
	var starts, schedules, webhooks []time.Duration
	at := map[string]time.Time{}
	for _, t := range w.observed {
		if t.report == nil {
			continue
		}
		for _, e := range t.report.Events {
			at[e.ID] = e.At
		}
		for _, e := range t.report.Events {
			if due := t.job.ExecutionAt; due != nil && e.Next == client.ForgeRunStateQueued {
				schedules = append(schedules, e.At.Sub(*due))
				break
			} else if due == nil && e.Next == client.ForgeRunStateRunning {
				starts = append(starts, e.At.Sub(t.job.CreatedAt))
				break
			}
		}
	}
	for _, h := range w.receivers {
		if h.behavior != behaviorAccepts {
			continue
		}
		for _, receipts := range h.receipts {
			visited := map[string]bool{}
			for _, r := range receipts {
				if event, known := at[r.eventID]; known && r.accepted && !visited[r.eventID] {
					visited[r.eventID] = true
					webhooks = append(webhooks, r.at.Sub(event))
				}
			}
		}
	}
	return []Latency{newLatency("submit", s.times.submits), newLatency("submit to RUNNING", starts),
		newLatency("due to QUEUED", schedules), newLatency("event to webhook", webhooks)}
}

// write prints the summary, as text or as JSON.
func (m *Summary) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(m)
	}
	var b strings.Builder
	row := func(name string, n int, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s %8d  %s\n", name, n, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\n  %-31s %8s %8s %8s %8s %8s\n", "work kind", "submits", "success", "failed",
		"canceled", "refused")
	for _, kind := range slices.Sorted(maps.Keys(m.Kinds)) {
		c := m.Kinds[kind]
		fmt.Fprintf(&b, "  %-31s %8d %8d %8d %8d %8d\n", kind, c.Submits, c.Outcomes["SUCCESS"],
			c.Outcomes["FAILED"], c.Outcomes["CANCELED"], c.Refused)
	}
	fmt.Fprintf(&b, "\n  %-18s %8s %10s %10s %10s %10s\n", "latency", "count", "p50", "p95", "p99",
		"max")
	for _, l := range m.Latencies {
		fmt.Fprintf(&b, "  %-18s %8d %10s %10s %10s %10s\n", l.What, l.Count,
			cli.FormatDuration(l.P50),
			cli.FormatDuration(l.P95), cli.FormatDuration(l.P99), cli.FormatDuration(l.Max))
	}
	fmt.Fprintf(&b, "\nThe accounts\n")
	row("submits", m.Submits,
		"%d acknowledged, %d refused as expected, %d too late after an outage", m.Acked,
		m.Refused, m.Late)
	row("jobs", m.Jobs,
		"with %d events; %d leases expired before the start, %d runs were lost in outages",
		m.Events, m.Requeued, m.LostRuns)
	row("webhook requests", m.Requests, "%d events accepted, %d of them again", m.Accepted,
		m.Repeated)
	row("deliveries given up", m.GivenUp,
		"to receivers that never accept; %d more wait for their next attempt", m.Pending)
	row("outages", m.Outages,
		"the server was unavailable for %s in all; %d answers 429, %d answers 503",
		cli.FormatDuration(m.OutageTime), m.Limited, m.Full)
	row("violations", m.Violations, "%s", m.violationsText())
	for _, o := range m.FirstViolations {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	if m.Violations > len(m.FirstViolations) {
		fmt.Fprintf(&b, "  … and %d more\n", m.Violations-len(m.FirstViolations))
	}
	fmt.Fprintf(&b, "\n%d scenarios in %s (%s) on %s, seed %d\n", m.Scenarios,
		cli.FormatDuration(m.Took), cli.FormatRate(int64(m.Scenarios), m.Took), m.Server, m.Seed)
	if m.Interrupted {
		fmt.Fprintf(&b, "It was interrupted: only the scenarios that had ended were audited, "+
			"without their webhooks. %s had not ended.\n",
			cli.Pluralize(int64(m.Unfinished), "scenario"))
	}
	if m.Balanced {
		fmt.Fprintln(&b, "The accounts balance.")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// violationsText counts the violations of each sort.
func (m *Summary) violationsText() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(m.ViolationsByKind)) {
		parts = append(parts, fmt.Sprintf("%d %s", m.ViolationsByKind[what], what))
	}
	return strings.Join(parts, ", ")
}
