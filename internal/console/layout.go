package console

import (
	"cmp"
	"slices"
	"time"
)

// The layout of a graph (decision 0073). Jobs stand in layers from left to right, each in the layer
// after the last of those that it depends on. Within a layer each stands near the middle of its
// neighbours. An arrow over several layers bends in each, so that it passes through no job. The
// same graph always has the same layout.
//
//	layer 0    layer 1    layer 2
//	┌───┐      ┌───┐      ┌───┐
//	│ a ├─────▶│ b ├─────▶│ c │     layersOf   the layer of each job
//	└─┬─┘      └───┘      └─▲─┘     bend       places for bends, where arrows pass a layer
//	  └──────────•──────────┘       columns    the order within each layer, in a few sweeps
//	                                position   pixels
//
// The cost grows with jobs and bends, and both are bounded (admin.JobGraph, maxBends).

// arrow leads from a job to one that depends on it; jobs are numbered from 0.
type arrow struct{ from, to int }

// The sizes of boxes and the gaps between them, in pixels. All are even.
const (
	boxWidth, boxHeight = 184, 46
	bendHeight          = 10
	layerGap, rowGap    = 64, 16
	graphMargin         = 12
)

// maxBends bounds the bends of a layout. Further arrows go straight.
const maxBends = 20_000

// sweeps is how often the order of all layers is improved, in each direction.
const sweeps = 4

// layout has the places of jobs, and after them those of bends.
type layout struct {
	layer []int   // of each
	x, y  []int   // of the upper left corner of each
	order []int   // the jobs, each after those that it depends on
	bends [][]int // of the arrows that leave a job, in the layers after it
	lines []arrow // the drawn pieces of the arrows

	width, height int
}

// newLayout places a graph of n jobs, which has no cycle.
func newLayout(n int, arrows []arrow) *layout {
	l := &layout{bends: make([][]int, n)}
	l.layer, l.order = layersOf(n, arrows)
	l.bend(arrows)
	l.position(l.columns())
	return l
}

// layersOf returns the layer of each job, which is the length of the longest path to it, and the
// jobs in an order in which each stands after those that it depends on.
func layersOf(n int, arrows []arrow) (layer, order []int) {
	layer = make([]int, n)
	open, next := make([]int, n), make([][]int, n)
	for _, a := range arrows {
		open[a.to]++
		next[a.from] = append(next[a.from], a.to)
	}
	for i := range n {
		if open[i] == 0 {
			order = append(order, i)
		}
	}
	for at := 0; at < len(order); at++ {
		from := order[at]
		for _, to := range next[from] {
			layer[to] = max(layer[to], layer[from]+1)
			if open[to]--; open[to] == 0 {
				order = append(order, to)
			}
		}
	}
	return layer, order
}

// bend makes the bends and the lines. The arrows that leave a job share its bends.
func (l *layout) bend(arrows []arrow) {
	maxLayers := len(l.layer) + maxBends
	for _, a := range arrows {
		at := l.layer[a.from] + 1 + len(l.bends[a.from])
		for ; at < l.layer[a.to] && len(l.layer) < maxLayers; at++ {
			l.bends[a.from] = append(l.bends[a.from], len(l.layer))
			l.layer = append(l.layer, at)
		}
	}
	for from, bends := range l.bends {
		for _, to := range bends {
			l.lines = append(l.lines, arrow{from, to})
			from = to
		}
	}
	for _, a := range arrows {
		route := l.route(a)
		l.lines = append(l.lines, arrow{route[len(route)-2], a.to})
	}
}

// route returns the places over which an arrow goes.
func (l *layout) route(a arrow) []int {
	bends := l.bends[a.from]
	between := max(0, l.layer[a.to]-l.layer[a.from]-1)
	route := append([]int{a.from}, bends[:min(between, len(bends))]...)
	return append(route, a.to)
}

// columns returns the places of each layer in their order from top to bottom.
func (l *layout) columns() [][]int {
	if len(l.layer) == 0 {
		return nil
	}
	columns := make([][]int, slices.Max(l.layer)+1)
	for i, at := range l.layer {
		columns[at] = append(columns[at], i)
	}
	before, after := make([][]int, len(l.layer)), make([][]int, len(l.layer))
	for _, line := range l.lines {
		before[line.to] = append(before[line.to], line.from)
		after[line.from] = append(after[line.from], line.to)
	}
	rows := make([]float64, len(l.layer))
	for _, column := range columns {
		numberRows(column, rows)
	}
	for range sweeps {
		for _, column := range slices.Backward(columns) {
			sortByNeighbours(column, after, rows)
		}
		for _, column := range columns {
			sortByNeighbours(column, before, rows)
		}
	}
	return columns
}

// numberRows sets the rows of a column, which are counted from its middle.
func numberRows(column []int, rows []float64) {
	for row, i := range column {
		rows[i] = float64(row) - float64(len(column)-1)/2
	}
}

// sortByNeighbours orders a column by the mean row of the neighbours of each. One that has none
// keeps to its row.
func sortByNeighbours(column []int, neighbours [][]int, rows []float64) {
	means := make(map[int]float64, len(column))
	for _, i := range column {
		means[i] = rows[i]
		if len(neighbours[i]) > 0 {
			sum := 0.0
			for _, other := range neighbours[i] {
				sum += rows[other]
			}
			means[i] = sum / float64(len(neighbours[i]))
		}
	}
	slices.SortStableFunc(column, func(a, b int) int { return cmp.Compare(means[a], means[b]) })
	numberRows(column, rows)
}

// position gives each its position: layers side by side, each in the middle of the height.
func (l *layout) position(columns [][]int) {
	l.x, l.y = make([]int, len(l.layer)), make([]int, len(l.layer))
	heights := make([]int, len(columns))
	for at, column := range columns {
		for _, i := range column {
			heights[at] += l.heightOf(i) + rowGap
		}
		l.height = max(l.height, heights[at])
	}
	for at, column := range columns {
		y := graphMargin + (l.height-heights[at])/2
		for _, i := range column {
			l.x[i], l.y[i] = graphMargin+at*(boxWidth+layerGap), y
			y += l.heightOf(i) + rowGap
		}
	}
	l.width = 2*graphMargin + len(columns)*(boxWidth+layerGap) - layerGap
	l.height += 2*graphMargin - rowGap
}

// heightOf returns the height of a job or a bend.
func (l *layout) heightOf(i int) int {
	if i < len(l.bends) {
		return boxHeight
	}
	return bendHeight
}

// middle returns the height at which lines reach a place.
func (l *layout) middle(i int) int { return l.y[i] + l.heightOf(i)/2 }

// critical returns the jobs of the critical path, from left to right, and how long they ran in all:
// it is the path whose jobs ran the longest, and of several the one with the most jobs.
func (l *layout) critical(arrows []arrow, durations []time.Duration) (path []int,
	all time.Duration) {
	next := make([][]int, len(durations))
	for _, a := range arrows {
		next[a.from] = append(next[a.from], a.to)
	}
	type length struct {
		duration time.Duration
		jobs     int
		from     int // the job before, -1 for none
	}
	isLonger := func(a, b length) bool {
		return a.duration > b.duration || (a.duration == b.duration && a.jobs > b.jobs)
	}
	lengths := make([]length, len(durations)) // of the longest path that ends before each job
	for i := range lengths {
		lengths[i].from = -1
	}
	end, longest := -1, length{}
	for _, i := range l.order {
		through := length{lengths[i].duration + durations[i], lengths[i].jobs + 1, i}
		if isLonger(through, longest) {
			end, longest = i, through
		}
		for _, to := range next[i] {
			if isLonger(through, lengths[to]) {
				lengths[to] = through
			}
		}
	}
	for i := end; i >= 0; i = lengths[i].from {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path, longest.duration
}
