//go:build !race

package engine_test

import (
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/testkit"
)

// maxAllocations are the allocations of a job by database, job type and verb, in batches of 100.
// Jobs that are kept end with a result. TestAllocations allows 15 % more. The race detector
// allocates by itself.
var maxAllocations = map[string]map[string]float64{
	"sqlite, removed":   {"submit": 9.6, "claim": 8.2, "finish": 3.7},
	"sqlite, kept":      {"submit": 9.8, "claim": 8.2, "finish": 5.8},
	"sqlite, events":    {"submit": 23.4, "claim": 17.7, "finish": 14.3},
	"postgres, removed": {"submit": 16.3, "claim": 24.4, "finish": 27.6},
	"postgres, kept":    {"submit": 16.3, "claim": 24.4, "finish": 28.6},
	"postgres, events":  {"submit": 38.7, "claim": 35.7, "finish": 38.9},
}

func TestAllocations(t *testing.T) {
	for _, database := range testkit.Databases {
		for _, jobType := range costJobTypes()[:4] {
			if name := database + ", " + jobType.Name; maxAllocations[name] != nil {
				t.Run(name, func(t *testing.T) {
					c := newCostMeter(t, database, jobType, engine.Feed{})
					for verb, got := range c.allocations() {
						if limit := 1.15 * maxAllocations[name][verb]; got > limit {
							t.Errorf("%s: %.1f allocations of a job, want at most %.1f", verb, got,
								limit)
						}
					}
				})
			}
		}
	}
}

// allocations returns the allocations of a job by verb.
func (c *costMeter) allocations() map[string]float64 {
	c.Helper()
	const runs, size = 20, 100
	var batches [][]engine.Submission
	for range runs + 1 { // one more to warm up
		batches = append(batches, c.batch(size, true))
	}
	var claimed [][]engine.Run
	var result []byte
	if c.kept > 0 {
		result = []byte("{}")
	}
	next := 0
	of := func(verb func() error) float64 {
		return testing.AllocsPerRun(runs, func() { c.must(verb()) }) / size
	}
	submit := of(func() error {
		next++
		return c.submit(batches[next-1])
	})
	claim := of(func() error {
		runs, err := c.claim(size)
		claimed = append(claimed, runs)
		return err
	})
	finish := of(func() error {
		runs := claimed[0]
		claimed = claimed[1:]
		_, err := c.finish(runs, result, false)
		return err
	})
	return map[string]float64{"submit": submit, "claim": claim, "finish": finish}
}
