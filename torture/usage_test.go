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

// TestBoundedUsage: a process that has far more descriptors or goroutines all through its last
// minute than in its third is a violation. Peaks are none, and memory is not looked at.
func TestBoundedUsage(t *testing.T) {
	t.Parallel()
	life := func(minutes float64, value func(minute float64) [3]float64) *processLife {
		l := &processLife{}
		for m := 0.0; m <= minutes; m += 0.25 {
			at := time.Duration(m * float64(time.Minute))
			l.samples = append(l.samples, usage{at, value(m)})
		}
		return l
	}
	for _, c := range []struct {
		name string
		life *processLife
		want int
	}{
		{"steady", life(30, func(float64) [3]float64 { return [3]float64{400, 75, 160} }), 0},
		{"memory grows", life(30, func(m float64) [3]float64 {
			return [3]float64{100 * m, 75, 160}
		}), 0},
		{"descriptors grow", life(30, func(m float64) [3]float64 {
			return [3]float64{400, 20 * m, 160}
		}), 1},
		{"both grow", life(30, func(m float64) [3]float64 {
			return [3]float64{400, 20 * m, 30 * m}
		}), 2},
		{"few more", life(30, func(m float64) [3]float64 {
			return [3]float64{400, 5 * m, 160}
		}), 0},
		{"a peak at the end", life(30, func(m float64) [3]float64 {
			if m > 29.5 {
				return [3]float64{400, 9000, 9000}
			}
			return [3]float64{400, 75, 160}
		}), 0},
		{"too short", life(3.5, func(m float64) [3]float64 {
			return [3]float64{400, 1000 * m, 160}
		}), 0},
		{"never seen", &processLife{}, 0},
	} {
		var v violations
		if v.checkUsage([]*processLife{c.life}); v.counts["I18 bounded"] != c.want {
			t.Errorf("%s: %v, want %d", c.name, v.examples, c.want)
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
