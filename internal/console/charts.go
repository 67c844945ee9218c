package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/series"
)

// Charts are drawn here as SVG, with the same numbers in a table behind each (CO-006).

// chart is one chart.
type chart struct {
	Title  string
	SVG    template.HTML
	Legend []legend
	Rows   []chartRow // of the table, the newest first
}

// legend names a line and what it is at last.
type legend struct{ Class, Name, Last string }

// chartRow is a row of the table.
type chartRow struct {
	At     time.Time
	Values []string
}

// line is a line of a chart. A value that is not known is NaN.
type line struct {
	class, name string
	value       func(p *series.Point) float64
}

// plot describes a chart.
type plot struct {
	title  string
	format func(float64) string
	lines  []line
}

// plots are the charts of overview and queues, in their order.
func plots(step time.Duration) []plot {
	counted := func(of func(*series.Bucket) uint64) func(*series.Point) float64 {
		return func(p *series.Point) float64 {
			if p.Partial {
				return math.NaN() // the step is not over: it would look like a fall
			}
			return float64(of(&p.Bucket)) / step.Minutes()
		}
	}
	quantileOf := func(of func(*series.Bucket) *engine.Histogram,
		q float64) func(*series.Point) float64 {
		return func(p *series.Point) float64 {
			d, ok := of(&p.Bucket).Quantile(q)
			if !ok {
				return math.NaN()
			}
			return d.Seconds()
		}
	}
	waits := func(b *series.Bucket) *engine.Histogram { return &b.Wait }
	runs := func(b *series.Bucket) *engine.Histogram { return &b.Run }
	return []plot{
		{"Jobs a minute", formatCount, []line{
			{"a", "succeeded", counted(func(b *series.Bucket) uint64 { return b.Succeeded })},
			{"b", "submitted", counted(func(b *series.Bucket) uint64 { return b.Submitted })}}},
		{"Failures a minute", formatCount, []line{
			{"c", "failed", counted(func(b *series.Bucket) uint64 { return b.Failed })}}},
		{"Wait until the start", formatSeconds, []line{
			{"a", "p50", quantileOf(waits, 0.5)}, {"b", "p95", quantileOf(waits, 0.95)}}},
		{"Run", formatSeconds, []line{
			{"a", "p50", quantileOf(runs, 0.5)}, {"b", "p95", quantileOf(runs, 0.95)}}},
		{"Ready jobs", formatCount, []line{{"a", "most at once",
			func(p *series.Point) float64 {
				if p.Partial && p.Depth == 0 {
					return math.NaN() // it may not have been looked at yet
				}
				return float64(p.Depth)
			}}}},
		{requestsTitle, formatCount, []line{
			{"a", "requests", counted(func(b *series.Bucket) uint64 { return b.Requests })},
			{"c", "errors", counted(func(b *series.Bucket) uint64 { return b.Errors })}}},
	}
}

// requestsTitle is the title of the chart of requests, which are not known of queues.
const requestsTitle = "Requests a minute"

// ranges are the times that charts show, by the parameter range.
var ranges = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour,
	"7d": 7 * 24 * time.Hour}

// charts reads a series over the range of the query and draws it.
func (o *Console) charts(c *httpapi.Call, q series.Query) ([]chart, error) {
	length := ranges[c.Request.URL.Query().Get("range")]
	if length == 0 {
		length = time.Hour
	}
	q.To = o.api.Now().UTC()
	q.From = q.To.Add(-length)
	s, err := o.api.Series.Read(c.Context(), q)
	if err != nil {
		return nil, err
	}
	var all []chart
	for _, p := range plots(s.Step) {
		if q.Queue == "" || p.title != requestsTitle {
			all = append(all, p.draw(&s))
		}
	}
	return all, nil
}

// The size of a chart, in its own units, and the margins for its labels.
const (
	chartWidth, chartHeight = 340, 124
	chartTop, chartBottom   = 14, 18
)

// draw draws a chart.
func (p *plot) draw(s *series.Series) chart {
	values := make([][]float64, len(p.lines))
	top := 0.0
	for i, l := range p.lines {
		for j := range s.Points {
			v := l.value(&s.Points[j])
			values[i] = append(values[i], v)
			top = math.Max(top, orZero(v))
		}
	}
	top = niceTop(top)
	made := chart{Title: p.title}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth,
		chartHeight, template.HTMLEscapeString(p.describe(values, s)))
	for _, share := range []float64{0, 0.5, 1} {
		y := yOf(share)
		fmt.Fprintf(&b, `<path class="grid" d="M0 %.1fH%d"/>`, y, chartWidth)
		if share > 0 {
			fmt.Fprintf(&b, `<text x="0" y="%.1f">%s</text>`, y-3,
				template.HTMLEscapeString(p.format(top*share)))
		}
	}
	for i, l := range p.lines {
		b.WriteString(drawLine(l.class, values[i], top))
		made.Legend = append(made.Legend, legend{l.class, l.name, p.last(values[i])})
	}
	layout := "15:04"
	if s.To.Sub(s.From) > 24*time.Hour {
		layout = "Jan 2"
	}
	fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><text x="%d" y="%d" text-anchor="end">%s UTC</text></svg>`,
		chartHeight-4, s.From.UTC().Format(layout), chartWidth, chartHeight-4,
		s.To.UTC().Format(layout))
	made.SVG = template.HTML(b.String())
	made.Rows = p.rows(values, s)
	return made
}

// yOf returns the height of a share of the top.
func yOf(share float64) float64 {
	return chartTop + (chartHeight-chartTop-chartBottom)*(1-share)
}

// drawLine draws a line, with gaps where nothing is known.
func drawLine(class string, values []float64, top float64) string {
	var b strings.Builder
	move := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			move = "M"
			continue
		}
		x := float64(chartWidth) * float64(i) / float64(max(1, len(values)-1))
		fmt.Fprintf(&b, "%s%.1f %.1f", move, x, yOf(v/top))
		if move == "M" && (i+1 == len(values) || math.IsNaN(values[i+1])) {
			b.WriteString("h.1") // a point alone
		}
		move = "L"
	}
	return `<path class="line ` + class + `" d="` + b.String() + `"/>`
}

// maxRows bounds the rows of the table behind a chart.
const maxRows = 60

// rows returns the table, the newest first. Where there are many points only some are shown.
func (p *plot) rows(values [][]float64, s *series.Series) (rows []chartRow) {
	every := (len(s.Points) + maxRows - 1) / maxRows
	for j := len(s.Points) - 1; j >= 0; j -= max(1, every) {
		row := chartRow{At: s.Points[j].At}
		for i := range values {
			row.Values = append(row.Values, p.text(values[i][j]))
		}
		rows = append(rows, row)
	}
	return rows
}

// text formats a value; a dash where it is not known.
func (p *plot) text(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return p.format(v)
}

// last returns the last value that is known.
func (p *plot) last(values []float64) string {
	for i := len(values) - 1; i >= 0; i-- {
		if !math.IsNaN(values[i]) {
			return p.format(values[i])
		}
	}
	return "–"
}

// describe says in words what a chart shows.
func (p *plot) describe(values [][]float64, s *series.Series) string {
	var words []string
	for i, l := range p.lines {
		most := 0.0
		for _, v := range values[i] {
			most = math.Max(most, orZero(v))
		}
		words = append(words, l.name+" now "+p.last(values[i])+", at most "+p.format(most))
	}
	return p.title + " over " + lasted(s.To.Sub(s.From)) + ": " + strings.Join(words, "; ")
}

// orZero returns 0 for a value that is not known.
func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// niceTop returns a number not below v that reads well on an axis.
func niceTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 4, 6, 8, 10} {
		if v <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

// formatCount formats a number of jobs, which may be a rate.
func formatCount(v float64) string {
	if v != 0 && v < 10 && v != math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return number(int64(math.Round(v)))
}

// formatSeconds formats seconds for people.
func formatSeconds(v float64) string { return lasted(time.Duration(v * float64(time.Second))) }
