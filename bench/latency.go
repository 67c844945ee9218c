package main

import (
	"slices"
	"strconv"
	"time"
)

// latencyShares are the percentiles of a latency picture.
var latencyShares = []float64{50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// latencyChart draws the percentiles of the phases of steady loads that count from the intended
// time, over all rounds together. Its x is one divided by the share that took longer.
func latencyChart(tracks []*Track, machine Machine) Chart {
	share := func(above float64) string {
		return strconv.FormatFloat(100-100/above, 'g', 6, 64)
	}
	c := Chart{Title: "Submit to start at a steady rate", Note: machine.String(),
		X: Axis{Label: "percentile", Text: share, Raw: share}, Y: Axis{Label: "ms"}}
	for _, share := range []float64{50, 90, 99, 99.9, 99.99} {
		c.X.Ticks = append(c.X.Ticks, Tick{100 / (100 - share), strconv.FormatFloat(share, 'f', -1,
			64)})
	}
	for _, t := range tracks {
		if samples := latencySamples(t, startedFromIntended); len(samples) > 0 {
			c.Series = append(c.Series, Series{Name: t.Case.Name, Points: latencyPoints(samples)})
		}
	}
	return c
}

// latencySamples are the latencies of a phase of all rounds.
func latencySamples(t *Track, phase string) []time.Duration {
	var all []time.Duration
	for _, p := range t.Each(phase) {
		if p != nil {
			all = append(all, p.Latency...)
		}
	}
	return all
}

// latencyPoints are the percentiles that so many samples can show, each at one divided by the share
// that took longer. Nothing is rounded into buckets: the samples are sorted.
func latencyPoints(samples []time.Duration) []Point {
	sorted := slices.Sorted(slices.Values(samples))
	var points []Point
	for _, share := range latencyShares {
		above := 100 / (100 - share)
		if float64(len(sorted)) < above*0.999 {
			break
		}
		at := max(percentile(sorted, share), time.Microsecond)
		points = append(points, Point{X: above, Y: float64(at) / float64(time.Millisecond)})
	}
	return points
}
