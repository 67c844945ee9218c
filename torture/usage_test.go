package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestGrowth: a line is fitted to what the longest process of each node used after its first
// minutes, and to none that was short.
func TestGrowth(t *testing.T) {
	t.Parallel()
	samples := func(minutes int, value func(minute float64) float64) (all []usage) {
		for i := range minutes + 1 {
			v := value(float64(i))
			all = append(all, usage{time.Duration(i) * time.Minute, [3]float64{v, 2 * v, 7}})
		}
		return all
	}
	lives := []*processLife{
		{node: 0, samples: samples(5, func(float64) float64 { return 1000 })},
		{node: 0, samples: samples(32, func(m float64) float64 {
			if m < usageWarm.Minutes() {
				return 1
			}
			return 100 + m/2 + math.Mod(m, 2) // 30 an hour, and what goes up and down
		})},
		{node: 1, samples: samples(11, func(float64) float64 { return 5 })},
		{node: 2},
	}
	all := growthOf(lives)
	if len(all) != len(usageNames) {
		t.Fatalf("%d lines: %v", len(all), all)
	}
	for i, want := range []growth{{First: 101.5, Last: 116.5, Hour: 30},
		{First: 203, Last: 233, Hour: 60}, {First: 7, Last: 7}} {
		got := all[i]
		if got.Node != 0 || got.Life != 32*time.Minute || got.Of != usageNames[i] ||
			math.Abs(got.Hour-want.Hour) > 0.5 || math.Abs(got.First-want.First) > 0.5 ||
			math.Abs(got.Last-want.Last) > 0.5 {
			t.Errorf("%s, want %+v", got, want)
		}
	}
}

// TestMetricOf: a metric is read from a page of them, whatever labels it has.
func TestMetricOf(t *testing.T) {
	t.Parallel()
	page := "# HELP go_goroutines Number\n# TYPE go_goroutines gauge\n" +
		"go_goroutines{contract=\"\",component=\"process\"} 42\n"
	if v, err := metricOf(strings.NewReader(page), "go_goroutines"); err != nil || v != 42 {
		t.Errorf("%v %v", v, err)
	}
	if v, err := metricOf(strings.NewReader(page), "go_threads"); err == nil {
		t.Errorf("there is %v", v)
	}
}
