package console

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// randomGraph returns the arrows of a graph without cycles, in which each job depends on at most
// so many of those before it, in any order of their numbers.
func randomGraph(seed uint64, n, maxLayers int) (all []arrow) {
	r := rand.New(rand.NewPCG(seed, 1))
	names := r.Perm(n)
	for to := 1; to < n; to++ {
		for _, from := range r.Perm(to)[:min(to, r.IntN(maxLayers+1))] {
			all = append(all, arrow{names[from], names[to]})
		}
	}
	return all
}

// chain returns the arrows of jobs that each depend on the one before.
func chain(n int) (all []arrow) {
	for i := 1; i < n; i++ {
		all = append(all, arrow{i - 1, i})
	}
	return all
}

// graphs are what the layout is tested with.
func graphs() map[string]struct {
	n      int
	arrows []arrow
} {
	type graph = struct {
		n      int
		arrows []arrow
	}
	var fan, long []arrow
	for i := 1; i < 2000; i++ {
		fan = append(fan, arrow{0, i})
		long = append(long, arrow{i - 1, i}, arrow{max(0, i-25), i})
	}
	all := map[string]graph{"none": {}, "one": {n: 1}, "alone": {n: 7}, "chain": {2000, chain(2000)},
		"fan": {2000, fan}, "shortcut": {3, []arrow{{0, 1}, {1, 2}, {0, 2}}},
		"more bends than are made": {2000, long},
		"2,000 jobs":               {2000, randomGraph(7, 2000, 3)},
		"2,000 jobs, dense":        {2000, randomGraph(8, 2000, 50)}}
	for seed := range uint64(50) {
		all["random "+number(seed)] = graph{30, randomGraph(seed, 30, 4)}
	}
	return all
}

// Layers go from left to right: each arrow and each line of it leads to the right, and a job stands
// in the layer after the last of those that it depends on. Nothing overlaps, all is within the
// drawing, and the same graph has the same layout.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, g := range graphs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLayout(g.n, g.arrows)
			if !reflect.DeepEqual(l, newLayout(g.n, slices.Clone(g.arrows))) {
				t.Error("another layout of the same graph")
			}
			want := make([]int, g.n)
			for _, i := range l.order {
				for _, a := range g.arrows {
					if a.from == i {
						want[a.to] = max(want[a.to], want[i]+1)
					}
				}
			}
			if len(l.order) != g.n || !slices.Equal(l.layer[:g.n], want) {
				t.Errorf("the layers of %d jobs are %v, want %v", len(l.order), l.layer[:g.n], want)
			}
			checkLines(t, l, g.arrows)
			checkPlaces(t, l)
		})
	}
}

// checkLines fails unless all arrows are drawn, to the right.
func checkLines(t *testing.T, l *layout, arrows []arrow) {
	t.Helper()
	drawn := map[arrow]bool{}
	for _, line := range l.lines {
		drawn[line] = true
		if l.x[line.from]+boxWidth >= l.x[line.to] {
			t.Fatalf("%v leads from %d to %d", line, l.x[line.from], l.x[line.to])
		}
	}
	for _, a := range arrows {
		route := l.route(a)
		for k := 1; k < len(route); k++ {
			if !drawn[arrow{route[k-1], route[k]}] {
				t.Fatalf("%v lacks a line between %v", a, route[k-1:k+1])
			}
		}
		bent := len(route)-1 == l.layer[a.to]-l.layer[a.from]
		if !bent && len(l.layer) < len(l.bends)+maxBends {
			t.Fatalf("%v passes through layers: %v", a, route)
		}
	}
}

// checkPlaces fails if two places overlap or one is outside of the drawing.
func checkPlaces(t *testing.T, l *layout) {
	t.Helper()
	columns := map[int][]int{}
	for i, x := range l.x {
		if x != graphMargin+l.layer[i]*(boxWidth+layerGap) {
			t.Fatalf("%d of layer %d is at %d", i, l.layer[i], x)
		}
		if l.y[i] < graphMargin || x+boxWidth > l.width-graphMargin ||
			l.y[i]+l.heightOf(i) > l.height-graphMargin {
			t.Fatalf("%d at %d, %d is outside of %d, %d", i, x, l.y[i], l.width, l.height)
		}
		columns[x] = append(columns[x], i)
	}
	for x, column := range columns {
		slices.SortFunc(column, func(a, b int) int { return l.y[a] - l.y[b] })
		for k := 1; k < len(column); k++ {
			if l.y[column[k-1]]+l.heightOf(column[k-1])+rowGap > l.y[column[k]] {
				t.Fatalf("%v overlap at %d", column[k-1:k+1], x)
			}
		}
	}
}

// Within a layer jobs stand near their neighbours: lines that need not cross do not.
func TestLayoutOrder(t *testing.T) {
	t.Parallel()
	// Three chains whose jobs were numbered in opposite orders.
	l := newLayout(9, []arrow{{0, 5}, {1, 4}, {2, 3}, {5, 6}, {4, 7}, {3, 8}})
	for _, a := range [][]int{{0, 5, 6}, {1, 4, 7}, {2, 3, 8}} {
		if l.y[a[0]] != l.y[a[1]] || l.y[a[1]] != l.y[a[2]] {
			t.Errorf("the chain %v is at %d, %d and %d", a, l.y[a[0]], l.y[a[1]], l.y[a[2]])
		}
	}
}

// The critical path is the one whose jobs ran the longest, and of several the one with the most
// jobs.
func TestCriticalPath(t *testing.T) {
	t.Parallel()
	diamond := []arrow{{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}, {0, 5}}
	for _, c := range []struct {
		name string
		ran  []time.Duration
		want []int
		all  time.Duration
	}{
		{"nothing ran", []time.Duration{0, 0, 0, 0, 0, 0}, []int{0, 1, 3, 4}, 0},
		{"the slow branch", []time.Duration{1, 2, 5, 1, 0, 3}, []int{0, 2, 3, 4}, 7},
		{"a short path that is slow", []time.Duration{1, 2, 2, 1, 1, 9}, []int{0, 5}, 10},
	} {
		path, all := newLayout(6, diamond).critical(diamond, c.ran)
		if !slices.Equal(path, c.want) || all != c.all {
			t.Errorf("%s: %v in %d, want %v in %d", c.name, path, all, c.want, c.all)
		}
	}
	if path, _ := newLayout(0, nil).critical(nil, nil); len(path) != 0 {
		t.Errorf("no jobs have the path %v", path)
	}
}
