//go:build !race

package engine_test

import (
	"testing"

	"github.com/millrace/millrace/internal/engine"
)

// maxAllocations are the allocations of a job by verb, in batches of 100 on SQLite, with rows
// removed when it ends. TestAllocations allows 15 % more. The race detector allocates by itself.
var maxAllocations = map[string]float64{"submit": 9.6, "claim": 8.2, "finish": 3.7}

func TestAllocations(t *testing.T) {
	const runs, size = 20, 100
	c := newCostMeter(t, "sqlite", costContracts()[0], engine.Feed{})
	var batches [][]engine.Submission
	for range runs + 1 { // one more to warm up
		batches = append(batches, c.batch(size, true))
	}
	var claimed [][]engine.Run
	next := 0
	for _, verb := range []struct {
		name string
		run  func() error
	}{
		{"submit", func() error {
			next++
			return c.submit(batches[next-1])
		}},
		{"claim", func() error {
			runs, err := c.claim(size)
			claimed = append(claimed, runs)
			return err
		}},
		{"finish", func() error {
			runs := claimed[0]
			claimed = claimed[1:]
			_, err := c.finish(runs, nil, false)
			return err
		}},
	} {
		got := testing.AllocsPerRun(runs, func() { c.must(verb.run()) }) / size
		if limit := 1.15 * maxAllocations[verb.name]; got > limit {
			t.Errorf("%s: %.1f allocations of a job, want at most %.1f", verb.name, got, limit)
		}
	}
}
