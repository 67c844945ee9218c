package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// verdict is what came of a run.
type verdict struct {
	Seed         uint64         `json:"seed"`
	Store        string         `json:"store"`
	Nodes        int            `json:"nodes"`
	Bug          string         `json:"bug,omitempty"`
	Faults       map[string]int `json:"faults"`
	Requests     int            `json:"requests"`
	Acknowledged int            `json:"acknowledged"`
	Refused      int            `json:"refused"`
	Unknown      int            `json:"unknown"`
	Applied      int            `json:"unknown_creates_applied"` // that were found carried out
	Created      int            `json:"jobs_acknowledged"`
	Granted      int            `json:"runs_granted"`
	Dead         int            `json:"dead_letters"`
	Events       int            `json:"events"`     // of jobs of ForgeRun
	Deliveries   int            `json:"deliveries"` // of them, to webhooks
	SlowRestart  time.Duration  `json:"slowest_restart"`
	Drain        time.Duration  `json:"drain"`
	Violations   map[string]int `json:"violations"`
	Examples     []string       `json:"examples,omitempty"`
	Again        string         `json:"again"`
}

// conclude audits a run.
func (r *run) conclude(ops []*op, f *final) *verdict {
	check(ops, f, &r.violations)
	v := &verdict{Seed: r.plan.Seed, Store: r.plan.Store, Nodes: r.plan.Nodes, Bug: r.plan.Bug,
		Faults: map[string]int{}, Requests: len(ops), Dead: len(f.Dead), Drain: r.drained,
		Violations: r.violations.counts, Examples: r.violations.examples, Again: r.plan.again()}
	for _, all := range f.Events {
		v.Events += len(all)
	}
	for _, all := range f.Deliveries {
		v.Deliveries += len(all)
	}
	for _, f := range r.faults[:r.done] {
		v.Faults[f.Kind]++
	}
	for _, n := range r.nodes {
		v.SlowRestart = max(v.SlowRestart, slices.Max(append(n.recoveries, 0)))
	}
	there := map[string]bool{}
	for _, o := range ops {
		for _, g := range o.Grants {
			there[g.Job] = true
		}
	}
	for id, j := range f.Jobs {
		there[id], there[j.Name] = true, true
	}
	for _, j := range f.Fetch {
		there[j.Name] = true
	}
	for _, file := range f.Files {
		there[file.Name] = true
	}
	for _, o := range ops {
		v.count(o, there)
	}
	return v
}

// count adds a request. there has the ids and names of jobs that are known to have been stored.
func (v *verdict) count(o *op, there map[string]bool) {
	switch o.Class {
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
	v.Granted += len(o.Grants)
	if o.Verb == "create" && o.Class == classOK {
		v.Created += len(o.Made)
	}
}

// write writes the verdict for readers, and as JSON beside the ledger.
func (v *verdict) write(w io.Writer, dir string) error {
	fmt.Fprintf(w, "seed %d, %s with %d node(s): %d requests, %d acknowledged, %d refused, "+
		"%d unknown (%d creates among them were carried out)\n", v.Seed, v.Store, v.Nodes,
		v.Requests, v.Acknowledged, v.Refused, v.Unknown, v.Applied)
	fmt.Fprintf(w, "%d jobs acknowledged, %d runs granted, %d dead letters, %d events in %d "+
		"deliveries; slowest restart %s, drained in %s\n", v.Created, v.Granted, v.Dead, v.Events,
		v.Deliveries, v.SlowRestart.Round(time.Millisecond), v.Drain.Round(time.Millisecond))
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(w, "%6d × %s\n", v.Faults[kind], kind)
	}
	for _, text := range v.Examples {
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
