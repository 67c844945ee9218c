package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// A graph is drawn by the server: newLayout gives jobs and arrows their places (layout.go),
// critical finds the path on which jobs have run for longest, and draw makes the SVG. A table
// beside it has the same jobs in the order of the layers.

// graphPage is what the page of a graph shows (CO-005).
type graphPage struct {
	Number      int64 // of the job whose graph it is
	Rows        []graphRow
	Layers      int
	Critical    int           // how many jobs the critical path has
	RunTime     time.Duration // how long these ran
	SVG         template.HTML
	IsTruncated bool
	IsFinished  bool // all jobs of the critical path are done and have gone well
}

// graphRow is a job of a graph.
type graphRow struct {
	admin.GraphJob
	Layer      int // from 1
	IsCritical bool
	Needs      []int64 // the numbers of those that it depends on
}

// showGraph is GET /console/jobs/{number}/graph.
func (o *Console) showGraph(c *httpapi.Call) (view, error) {
	j, err := o.api.PathJob(c)
	if err != nil {
		return view{}, err
	}
	g, err := o.api.JobGraph(c.Context(), j)
	if err != nil {
		return view{}, err
	}
	o.api.Viewer(c).RedactGraph(g)
	return view{Name: "graph", Title: "Graph of job " + strconv.FormatInt(j.Seq, 10),
		Page: graphOf(j.Seq, g, o.api.Now()),
		Live: liveScope{Queue: j.ID.JobType + "/", Number: j.Seq}}, nil
}

// graphOf lays a graph out. Its rows stand in the order of the layers.
func graphOf(number int64, g *admin.JobGraph, now time.Time) *graphPage {
	p := &graphPage{Number: number, IsTruncated: g.IsTruncated, Rows: make([]graphRow, len(g.Jobs))}
	at := make(map[int64]int, len(g.Jobs))
	durations := make([]time.Duration, len(g.Jobs))
	for i := range g.Jobs {
		at[g.Jobs[i].Number] = i
		p.Rows[i].GraphJob = g.Jobs[i]
		durations[i] = runTime(&g.Jobs[i].JobItem, now)
	}
	arrows := make([]arrow, len(g.Edges))
	for i, e := range g.Edges {
		arrows[i] = arrow{at[e.Dependency], at[e.Dependent]}
		row := &p.Rows[arrows[i].to]
		row.Needs = append(row.Needs, e.Dependency)
	}
	l := newLayout(len(g.Jobs), arrows)
	path, all := l.critical(arrows, durations)
	p.IsFinished = true
	for _, i := range path {
		p.Rows[i].IsCritical = true
		class, _ := jobBadge(p.Rows[i].Phase, p.Rows[i].State)
		p.IsFinished = p.IsFinished && class == "good"
	}
	for i := range p.Rows {
		slices.Sort(p.Rows[i].Needs)
		p.Rows[i].Layer = l.layer[i] + 1
		p.Layers = max(p.Layers, p.Rows[i].Layer)
	}
	p.Critical, p.RunTime = len(path), all
	p.SVG = l.draw(p, path)
	slices.SortStableFunc(p.Rows, func(a, b graphRow) int { return cmp.Compare(a.Layer, b.Layer) })
	return p
}

// runTime returns how long the present attempt of a job has run, or the last one of a job that is
// done; 0 for all others.
func runTime(j *admin.JobItem, now time.Time) time.Duration {
	end := j.FinishedAt
	if j.Phase == job.Leased.String() {
		end = now
	}
	if j.StartedAt.IsZero() || end.IsZero() {
		return 0
	}
	return max(0, end.Sub(j.StartedAt))
}

// Label returns the name of a job, or its number where it has none.
func (r *graphRow) Label() string {
	return cmp.Or(printable(r.Name), "Job "+strconv.FormatInt(r.Number, 10))
}

// maxLabel bounds a name in the drawing, in characters. The table and the tooltip have more of it.
const maxLabel = 20

// draw draws a graph: lines first, so that they pass behind jobs.
func (l *layout) draw(p *graphPage, path []int) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="dag" width="%d" height="%[2]d" viewBox="0 0 %[1]d %[2]d">`+
		`<clipPath id="box"><rect width="%[3]d" height="%[4]d"/></clipPath>`+
		`<clipPath id="word"><rect x="-14" y="-27" width="%[3]d" height="%[4]d"/></clipPath>`,
		l.width, l.height, boxWidth-8, boxHeight)
	l.drawLines(&b, "edge", l.lines)
	var critical []arrow
	for i := 1; i < len(path); i++ {
		route := l.route(arrow{path[i-1], path[i]})
		for k := 1; k < len(route); k++ {
			critical = append(critical, arrow{route[k-1], route[k]})
		}
	}
	l.drawLines(&b, "edge critical", critical)
	for i := range p.Rows {
		l.drawJob(&b, i, &p.Rows[i], p.Rows[i].Number == p.Number)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// drawLines draws lines as one path, as there may be many.
func (l *layout) drawLines(b *strings.Builder, class string, lines []arrow) {
	fmt.Fprintf(b, `<path class="%s" d="`, class)
	for _, line := range lines {
		x, y := l.x[line.from]+boxWidth, l.middle(line.from)
		toX, toY := l.x[line.to], l.middle(line.to)
		fmt.Fprintf(b, "M%d %dC%d %d %d %d %d %d", x, y, x+layerGap/2, y, toX-layerGap/2, toY, toX, toY)
		if line.to >= len(l.bends) {
			fmt.Fprintf(b, "h%d", boxWidth)
		}
	}
	b.WriteString(`"/>`)
}

// drawJob draws a job as a link with its name, its number and its state.
func (l *layout) drawJob(b *strings.Builder, i int, r *graphRow, isCurrent bool) {
	escape := template.HTMLEscapeString
	class, shape := jobBadge(r.Phase, r.State)
	box, current, critical := "box", "", ""
	if r.IsCritical {
		box, critical = "box critical", ", critical path"
	}
	if isCurrent {
		current = ` aria-current="true"`
	}
	number := strconv.FormatInt(r.Number, 10)
	state, label := printable(r.State), r.Label()
	fmt.Fprintf(b, `<a id="job-%s" href="%s"%s transform="translate(%d %d)"><title>%s</title>`,
		number, pathOf("jobs", number), current, l.x[i], l.y[i],
		escape(truncate(label, maxTitle)+", job "+number+", "+state+critical))
	fmt.Fprintf(b, `<rect class="%s" width="%d" height="%d" rx="6"/><text%s x="14" y="18">%s</text>`,
		box, boxWidth, boxHeight, clipAttribute(label, "box"), escape(truncate(label, maxLabel)))
	fmt.Fprintf(b, `<g class="state %s" transform="translate(14 27)"><rect class="stripe" x="-10" `+
		`y="-22" width="4" height="36" rx="2"/>%s<text class="word"%s x="17" y="10">%s</text></g>`,
		class, shape, clipAttribute(state, "word"), escape(truncate(state, maxLabel)))
	fmt.Fprintf(b, `<text class="number" x="%d" y="37" text-anchor="end">%s</text></a>`,
		boxWidth-10, number)
}

// maxUnclippedLabel is how many characters of the widest fonts a box has room for.
const maxUnclippedLabel = 12

// clipAttribute returns the attribute that cuts a text of a drawing, by the path with an id, where
// its box ends. A cut costs time: texts that surely fit have none.
func clipAttribute(text, path string) string {
	if utf8.RuneCountInString(text) <= maxUnclippedLabel {
		return ""
	}
	return ` clip-path="url(#` + path + `)"`
}

// maxTitle bounds a name in a tooltip, in characters.
const maxTitle = 200
