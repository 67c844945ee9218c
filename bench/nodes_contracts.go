package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// contractsFlags are those of nodes that serve both contracts.
var contractsFlags = []string{"--set", fmt.Sprint("taskflow.max_concurrent=", flowConcurrent),
	"--set", "taskflow.lease=10m"}

const (
	// contractsRatio is how many times fewer jobs TaskFlow has, so both take about as long.
	contractsRatio = 3
	// contractsEnders is how many connections complete jobs of TaskFlow one by one, for each that
	// claims them.
	contractsEnders = 3
)

// contractsCase is a line about Relay on one node and TaskFlow on another.
type contractsCase struct {
	nodesCase           // whose stores are one that both nodes share, or one each
	flow      []float64 // jobs of TaskFlow a second; those of Relay are the rates of the runs
}

// runContracts measures both contracts on one PostgreSQL, and with one each, by turns.
func (s *nodesSettings) runContracts(ctx context.Context, w *nodesWorld, stdout io.Writer) error {
	var cases []*contractsCase
	for _, batch := range []int{1, sizedBatch} {
		for _, stores := range []int{1, 2} {
			cases = append(cases, &contractsCase{nodesCase: nodesCase{nodes: 2 / stores,
				stores: stores, batch: batch, flags: contractsFlags}})
		}
	}
	if _, _, err := w.measureBoth(ctx, cases[0], s.jobs); err != nil { // which does not count
		return err
	}
	for round := range s.rounds {
		for _, c := range cases {
			r, flow, err := w.measureBoth(ctx, c, s.jobs)
			if err != nil {
				return err
			}
			c.runs, c.flow = append(c.runs, r), append(c.flow, flow)
			fmt.Fprintf(s.stderr, "round %d/%d: PostgreSQL %d, batches of %d: %.0f and %.0f jobs/s\n",
				round+1, s.rounds, c.stores, c.batch, r.rate, flow)
		}
	}
	return printContracts(stdout, cases)
}

// measureBoth takes n jobs through Relay on the first node and fewer through TaskFlow on the last
// one at the same time. It returns what a job of either has cost, with the rate of Relay, and the
// rate of TaskFlow.
func (w *nodesWorld) measureBoth(ctx context.Context, c *contractsCase, n int) (r nodesRun,
	flowRate float64, err error) {
	if c.batch > 1 {
		n *= 5
	}
	ofFlow := max(n/contractsRatio, 1)
	times := make([]time.Duration, 2)
	r, err = w.during(ctx, &c.nodesCase, n+ofFlow, func(stores []*nodesStore) error {
		_, err := runParallel(ctx, 2, 2, func(ctx context.Context, _, i int) error {
			load := func() ([]Phase, error) { return w.loadRelay(ctx, stores[0], c.batch, n) }
			if i == 1 {
				load = func() ([]Phase, error) {
					return loadFlow(ctx, stores[len(stores)-1], c.batch, ofFlow)
				}
			}
			phases, err := load()
			if err != nil {
				return err
			}
			times[i] = phases[len(phases)-1].Took
			return nil
		})
		return err
	})
	r.rate = float64(n) / times[0].Seconds()
	return r, float64(ofFlow) / times[1].Seconds(), err
}

// loadRelay takes jobs through the first node of a store.
func (w *nodesWorld) loadRelay(ctx context.Context, s *nodesStore, batch, n int) ([]Phase, error) {
	first := &relayQueue{env: s.env, batch: batch, whole: batch > 1, queues: 1,
		servers: s.servers[:1]}
	runner := &queueRunner{queueSystem: first, conns: w.clients, batch: batch}
	return runner.load(ctx, n)
}

// loadFlow sends jobs through the last node of a store, in graphs, and finishes them one by one or
// in batches.
func loadFlow(ctx context.Context, s *nodesStore, batch, n int) ([]Phase, error) {
	server := &flowServer{forgeServer: &forgeServer{millraceServer: s.servers[len(s.servers)-1]}}
	if batch > 1 {
		return flowGraph(ctx, server, 0, n)
	}
	return flowGraphSingle(ctx, server, contractsEnders, n)
}

func printContracts(stdout io.Writer, cases []*contractsCase) error {
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "PostgreSQL\tbatch\tRelay, jobs/s\tTaskFlow, jobs/s\tnodes, µs a job\t"+
		"PostgreSQL, µs a job\tWAL, bytes a job\t")
	for _, c := range cases {
		fmt.Fprintf(t, "%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", c.stores, c.batch,
			c.median(func(r nodesRun) float64 { return r.rate }), median(c.flow),
			c.median(func(r nodesRun) float64 { return r.ofNodes }),
			c.median(func(r nodesRun) float64 { return r.ofDatabase }),
			c.median(func(r nodesRun) float64 { return r.ofWAL }))
	}
	return t.Flush()
}
