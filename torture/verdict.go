package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// byMode is how often the faults of each kind were carried out in each of its modes.
type byMode map[string]map[string]int

// verdict is what came of a run.
type verdict struct {
	Seed         uint64         `json:"seed"`
	Store        string         `json:"store"`
	Nodes        int            `json:"nodes"`
	Bug          string         `json:"bug,omitempty"`
	Faults       map[string]int `json:"faults"`
	Modes        byMode         `json:"modes,omitempty"`
	Requests     int            `json:"requests"`
	Acknowledged int            `json:"acknowledged"`
	Operations   int            `json:"operations"` // acknowledged, see operations
	Refused      int            `json:"refused"`
	Unknown      int            `json:"unknown"`
	Applied      int            `json:"unknown_creates_applied"` // that were found carried out
	Created      int            `json:"jobs_acknowledged"`
	Claimed      int            `json:"runs_claimed"`
	Stale        int            `json:"stale_requests"`    // under a run that had been replaced
	Pauses       int            `json:"pauses_past_lease"` // freezes of a node that outlast one
	Dead         int            `json:"dead_letters"`
	Events       int            `json:"events"`     // of jobs of ForgeRun
	Committed    int            `json:"committed"`  // rows of transactions of callers
	Deliveries   int            `json:"deliveries"` // of them, to webhooks
	SlowRestart  time.Duration  `json:"slowest_restart"`
	Starts       startCounts    `json:"starts"`
	Drain        time.Duration  `json:"drain"`
	Failovers    []failedOver   `json:"failovers,omitempty"`
	Growth       []growth       `json:"growth,omitempty"` // of long processes
	Lost         map[string]int `json:"lost,omitempty"`   // by failovers to an asynchronous standby
	Lives        lives          `json:"lives"`
	Limited      rateCounts     `json:"limited_client"`
	Exempt       int            `json:"exempt_from_order"` // claims, see mayBeClaimed
	Wiped        int            `json:"wiped_dead_letters,omitempty"`
	Violations   map[string]int `json:"violations"`
	Examples     []string       `json:"examples,omitempty"`
	Again        string         `json:"again"`
}

// conclude audits a run.
func (r *run) conclude(ops []*op, f *final) *verdict {
	a := check(ops, f, &r.violations)
	v := &verdict{Seed: r.plan.Seed, Store: r.plan.Store, Nodes: r.plan.Nodes, Bug: r.plan.Bug,
		Faults: map[string]int{}, Modes: byMode{}, Wiped: a.wiped, Dead: len(f.Dead),
		Drain: r.drained, Lives: a.lifeCounts, Exempt: a.exempt, Stale: a.countStale(),
		Limited:    a.limited,
		Violations: r.violations.counts, Examples: r.violations.examples, Again: r.plan.again()}
	v.Growth, v.Committed = r.growth, len(f.Committed)
	if v.Failovers = r.failovers; losesAcknowledged(r.plan.Only) {
		v.Lost, v.Violations = splitLost(v.Violations)
	}
	for _, all := range f.Events {
		v.Events += len(all)
	}
	for _, all := range f.Deliveries {
		v.Deliveries += len(all)
	}
	for _, f := range r.faults[:r.done] {
		v.Faults[f.Kind]++
		if f.Mode != "" && v.Modes[f.Kind] == nil {
			v.Modes[f.Kind] = map[string]int{}
		}
		if f.Mode != "" {
			v.Modes[f.Kind][f.Mode]++
		}
		if f.Kind == faultFreeze && f.Length > lease {
			v.Pauses++
		}
	}
	for _, n := range r.nodes {
		v.SlowRestart = max(v.SlowRestart, slices.Max(append(n.recoveries, 0)))
		v.Starts.add(n.starts)
	}
	there := map[string]bool{}
	for _, o := range ops {
		for _, g := range o.Claimed {
			there[g.Job] = true
		}
	}
	for id, j := range f.Jobs {
		there[id], there[j.Name] = true, true
	}
	for id, j := range f.Fetch {
		there[id], there[j.Name] = true, true
	}
	for _, file := range f.Files {
		there[file.Name] = true
	}
	for _, o := range ops {
		v.count(o, there)
	}
	return v
}

// endEarly is what came of a run that could not go on: a verdict without an audit where a violation
// was found before, and else the error. A node that refuses its database is a violation.
func (r *run) endEarly(err error) (*verdict, error) {
	if errors.Is(err, errDamaged) {
		r.violations.add("database", "%v", err)
	}
	if len(r.violations.counts) == 0 {
		return nil, err
	}
	r.log("        the run ends without an audit: %v", err)
	return r.conclude(nil, &final{}), nil
}

// operations is how many operations an acknowledged op is: one for each job that it makes, and one
// where it makes none. A batch is not counted besides, and a claim is one, whatever it is given.
func (o *op) operations() int {
	if o.Class != classOK {
		return 0
	}
	return max(1, len(o.Made))
}

// count adds an op. there has the ids and names of jobs that are known to have been stored.
func (v *verdict) count(o *op, there map[string]bool) {
	v.Operations += o.operations()
	if o.Batch != 0 && o.Batch != o.ID {
		return // the request is counted already
	}
	v.Requests++
	answered := o.Class
	if o.Batch != 0 && o.Status != 0 {
		answered = classOf(o.Status) // that of the first run is another question
	}
	switch answered {
	case classOK:
		v.Acknowledged++
	case classFailed:
		v.Refused++
	case classUnknown:
		v.Unknown++
		if len(o.Made) > 0 && there[o.Made[0].label()] {
			v.Applied++
		}
	}
	v.Claimed += len(o.Claimed)
	if o.Verb == "submit" && o.Class == classOK {
		v.Created += len(o.Made)
	}
}

// write writes the verdict for readers, and as JSON beside the ledger.
func (v *verdict) write(w io.Writer, dir string) error {
	fmt.Fprintf(w, "seed %d, %s with %d node(s): %d requests, %d acknowledged, %d refused, "+
		"%d unknown (%d creates among them were carried out)\n", v.Seed, v.Store, v.Nodes,
		v.Requests, v.Acknowledged, v.Refused, v.Unknown, v.Applied)
	fmt.Fprintf(w, "%d operations acknowledged, with each job of a batch\n", v.Operations)
	fmt.Fprintf(w, "%d jobs acknowledged, %d runs claimed, %d dead letters, %d events in %d "+
		"deliveries; slowest restart %s, drained in %s\n", v.Created, v.Claimed, v.Dead, v.Events,
		v.Deliveries, v.SlowRestart.Round(time.Millisecond), v.Drain.Round(time.Millisecond))
	fmt.Fprintf(w, "%d pauses past the lease, %d requests under runs that had been replaced\n",
		v.Pauses, v.Stale)
	fmt.Fprintf(w, "lives of jobs: %d linearizable, %d not, %d not decided within %s\n",
		v.Lives.Ordered, v.Lives.Unordered, v.Lives.Undecided, lifeTimeout)
	fmt.Fprintf(w, "%d claims without a check of their order, as one that timed out may have held "+
		"jobs\n", v.Exempt)
	fmt.Fprintf(w, "of a client that may send %d requests a minute: %d accepted, up to %d in a "+
		"minute, %d refused\n", clientRate, v.Limited.Accepted, v.Limited.Max, v.Limited.Refused)
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(w, "%6d × %s", v.Faults[kind], kind)
		if len(v.Modes[kind]) > 0 {
			fmt.Fprintf(w, ": %s", countsByName(v.Modes[kind]))
		}
		fmt.Fprintln(w)
	}
	if v.Committed > 0 {
		fmt.Fprintf(w, "%d transactions of callers committed\n", v.Committed)
	}
	if v.Wiped > 0 {
		fmt.Fprintf(w, "%d dead letters of FetchBox have gone with the streams\n", v.Wiped)
	}
	if v.Starts.Older > 0 {
		fmt.Fprintf(w, "%d starts of nodes, %d of them of the older server\n", v.Starts.All,
			v.Starts.Older)
	}
	v.writeFailovers(w)
	for _, g := range v.Growth {
		fmt.Fprintln(w, g)
	}
	for _, text := range v.Examples {
		if kind, _, _ := strings.Cut(text, ":"); v.Lost[kind] > 0 {
			fmt.Fprintln(w, "lost:", text)
			continue
		}
		fmt.Fprintln(w, "VIOLATION", text)
	}
	if len(v.Violations) == 0 {
		fmt.Fprintln(w, "no violation")
	} else {
		fmt.Fprintf(w, "violations: %v\nagain: %s\n", v.Violations, v.Again)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "verdict.json"), append(text, '\n'), 0o600)
}
