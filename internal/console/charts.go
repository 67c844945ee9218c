package console

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/series"
)

// Charts are drawn here as SVG, with the same numbers in a table behind each (CO-006). A chart is
// made of one series, which all charts of a page share, so that they are of one moment:
//
//	chartTop     top ┤┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈   a number that reads well, not below the highest value
//	                 │   ╱╲      ╱
//	               0 ┼──╱──╲─ ──╱─────   a gap where nothing is known, which is not 0
//	chartBottom      15:04   15:19
//
// A count of a step is drawn as a rate, so that a line keeps its height when another range has
// longer steps. Colours come from classes alone, as nothing inline is permitted.

// chart is one chart.
type chart struct {
	Title  string
	SVG    template.HTML
	Legend []legend
	Rows   []chartRow // of the table, the newest first
}

// legend names a line, or something else that is drawn, and says what it is in all: Note is over
// which time, where it is a sum.
type legend struct{ Class, Name, Value, Note string }

// chartRow is a row of the table.
type chartRow struct {
	At     time.Time
	Values []string
}

// line is a line of a chart, which shows a metric.
type line struct{ class, name, metric string }

// plot describes a chart.
type plot struct {
	title string
	unit  unit
	lines []line
}

// unit is what the values of a plot are: how they are written, and the numbers that read well.
type unit struct {
	format func(float64) string
	nice   func(float64) float64
}

var (
	counts  = unit{formatCount, niceTop}
	seconds = unit{formatSeconds, niceSeconds}
)

// plots are the charts of overview and queues, in their order. Counts are shown a minute.
var plots = []plot{
	{"Jobs a minute", counts, []line{{"a", "succeeded", "succeeded"},
		{"b", "submitted", "submitted"}}},
	{"Failures a minute", counts, []line{{"c", "failed", "failed"}}},
	{"Wait until the start", seconds, []line{{"a", "p50", "wait_p50"},
		{"b", "p95", "wait_p95"}}},
	{"Run", seconds, []line{{"a", "p50", "run_p50"}, {"b", "p95", "run_p95"}}},
	{"Ready jobs", counts, []line{{"a", "most at once", depth}}},
	{"Requests a minute", counts, []line{{"a", "requests", "requests"},
		{"c", "errors", "errors"}}},
}

// valuesOf returns the values of a line at the points of a series. One that is not known is NaN.
// The count of a step that has not ended is of its time until now, and is not known in the first
// minute of it: it would jump.
func (l line) valuesOf(s *series.Series) []float64 {
	metric := series.FindMetric(l.metric)
	values := make([]float64, len(s.Points))
	for i := range s.Points {
		p := &s.Points[i]
		value, known := metric.Of(p)
		if metric.Counts {
			length := s.Step
			if p.Partial {
				length = min(length, s.To.Sub(p.At))
				known = known && length >= time.Minute
			}
			value /= length.Minutes()
		}
		if values[i] = value; !known {
			values[i] = math.NaN()
		}
	}
	return values
}

// legendOf returns what a line is in all: the sum of counts, the most of measures, and the last one
// of durations.
func (p *plot) legendOf(l line, values []float64, s *series.Series) legend {
	metric := series.FindMetric(l.metric)
	key := legend{Class: l.class, Name: l.name}
	switch {
	case metric.Counts:
		sum := 0.0
		for i := range s.Points {
			value, _ := metric.Of(&s.Points[i])
			sum += value
		}
		key.Value = formatCount(sum)
		key.Note = "in " + formatDuration(s.To.Sub(s.From).Round(time.Minute))
	case l.metric == depth:
		key.Value = p.unit.format(highest(values))
	default:
		key.Value = p.last(values)
	}
	return key
}

// depth is the metric of how many jobs are ready.
const depth = "depth"

// highest returns the highest of some values that is known, or 0.
func highest(values []float64) (top float64) {
	for _, v := range values {
		if v > top { // which is false of NaN
			top = v
		}
	}
	return top
}

// isOfContracts reports whether a chart shows a metric that queues do not have.
func (p *plot) isOfContracts() bool {
	return slices.ContainsFunc(p.lines, func(l line) bool {
		return series.FindMetric(l.metric).OfJobTypes
	})
}

// ranges are the times that charts show, by the parameter range.
var ranges = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour,
	"7d": 7 * 24 * time.Hour}

// rangeOf returns the range that a query asks for: an hour without one.
func rangeOf(c *httpapi.Call) (string, error) {
	name, _, err := c.Query("range")
	if err != nil {
		return "", err
	}
	if name = cmp.Or(name, "1h"); ranges[name] == 0 {
		return "", invalid("range must be 1h, 24h or 7d")
	}
	return name, nil
}

// charts reads a series over a range and draws it.
func (o *Console) charts(c *httpapi.Call, rangeName string, q series.Query) ([]chart, error) {
	q.To = o.api.Now().UTC()
	q.From = q.To.Add(-ranges[rangeName])
	s, err := o.api.Series.Read(c.Context(), q)
	if err != nil {
		return nil, err
	}
	var all []chart
	for _, p := range plots {
		if q.Queue == "" || !p.isOfContracts() {
			all = append(all, p.draw(&s))
		}
	}
	return all, nil
}

// The size of a chart, in its own units, and the margins for its labels.
const (
	chartWidth, chartHeight = 340, 132
	chartLeft               = 46
	chartTop, chartBottom   = 8, 22
)

// draw draws a chart.
func (p *plot) draw(s *series.Series) chart {
	values := make([][]float64, len(p.lines))
	top := 0.0
	for i, l := range p.lines {
		values[i] = l.valuesOf(s)
		top = max(top, highest(values[i]))
	}
	top = p.unit.nice(top)
	made := chart{Title: p.title, Rows: p.rows(values, s)}
	for i, l := range p.lines {
		made.Legend = append(made.Legend, p.legendOf(l, values[i], s))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth,
		chartHeight, template.HTMLEscapeString(p.describe(made.Legend, values, s)))
	for _, share := range []float64{0, 0.5, 1} {
		y := yOf(share)
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fH%d"/><text class="left" x="%d" y="%.1f">%s`+
			`</text>`, chartLeft, y, chartWidth, chartLeft-6, y+4,
			template.HTMLEscapeString(p.unit.format(top*share)))
	}
	drawTimes(&b, s)
	p.drawSteps(&b, made.Rows, s)
	for i, l := range p.lines {
		b.WriteString(drawLine(l.class, values[i], s, top))
	}
	b.WriteString(`</svg>`)
	made.SVG = template.HTML(b.String())
	for i := range made.Legend[1:] {
		made.Legend[i].Note = "" // that of the last one is of all
	}
	return made
}

// yOf returns the height of a share of the top.
func yOf(share float64) float64 {
	return chartTop + (chartHeight-chartTop-chartBottom)*(1-share)
}

// xOf returns where a time stands in the charts of a series.
func xOf(s *series.Series, at time.Time) float64 {
	return chartLeft + (chartWidth-chartLeft)*float64(at.Sub(s.From))/float64(s.To.Sub(s.From))
}

// ticksOf returns the time between two labels of the times of a chart, and how these are written.
func ticksOf(s *series.Series) (every time.Duration, layout string) {
	switch length := s.To.Sub(s.From); {
	case length <= 2*time.Hour:
		return 15 * time.Minute, "15:04"
	case length <= 26*time.Hour: // a day begins with a whole step
		return 6 * time.Hour, "15:04"
	}
	return 48 * time.Hour, "Jan 2"
}

// drawTimes draws the labels of the times of a chart.
func drawTimes(b *strings.Builder, s *series.Series) {
	const margin = 16 // of a label in the middle of its time
	fmt.Fprintf(b, `<text class="left" x="%d" y="%d">UTC</text>`, chartLeft-6, chartHeight-5)
	every, layout := ticksOf(s)
	for at := s.From.UTC().Truncate(every).Add(every); at.Before(s.To); at = at.Add(every) {
		x := xOf(s, at)
		if x < chartLeft+margin || x > chartWidth-margin {
			continue
		}
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %dv4"/><text class="time" x="%.1[1]f" y="%[3]d">%[4]s`+
			`</text>`, x, chartHeight-chartBottom, chartHeight-5, at.Format(layout))
	}
}

// drawSteps draws what the pointer meets: an area for each row of the table, with its values as
// text.
func (p *plot) drawSteps(b *strings.Builder, rows []chartRow, s *series.Series) {
	width := float64(chartWidth-chartLeft) / float64(max(1, len(rows)))
	for _, row := range rows {
		text := row.At.UTC().Format("Jan 2 15:04") + " UTC"
		for i, value := range row.Values {
			text += " · " + value + " " + p.lines[i].name
		}
		fmt.Fprintf(b, `<rect class="step" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title>`+
			`</rect>`, max(chartLeft, xOf(s, row.At)), chartTop, width,
			chartHeight-chartTop-chartBottom, template.HTMLEscapeString(text))
	}
}

// drawLine draws a line, with gaps where nothing is known.
func drawLine(class string, values []float64, s *series.Series, top float64) string {
	var b strings.Builder
	move := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			move = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", move, xOf(s, s.Points[i].At), yOf(v/top))
		if move == "M" && (i+1 == len(values) || math.IsNaN(values[i+1])) {
			b.WriteString("m-2 0h4") // a point alone
		}
		move = "L"
	}
	return `<path class="line ` + class + `" d="` + b.String() + `"/>`
}

// maxRows bounds the rows of the table behind a chart.
const maxRows = 60

// rows returns the table, the newest first. Where there are many points a row is of several of
// them, from its time on.
func (p *plot) rows(values [][]float64, s *series.Series) (rows []chartRow) {
	every := (len(s.Points) + maxRows - 1) / maxRows
	for from := 0; from < len(s.Points); from += every {
		row := chartRow{At: s.Points[from].At}
		to := min(from+every, len(s.Points))
		for i, l := range p.lines {
			row.Values = append(row.Values, p.text(l.together(values[i][from:to])))
		}
		rows = append(rows, row)
	}
	slices.Reverse(rows)
	return rows
}

// together returns one value for those of several steps: the mean of rates, and the highest of
// anything else. It is NaN where none is known.
func (l line) together(values []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	switch {
	case len(known) == 0:
		return math.NaN()
	case !series.FindMetric(l.metric).Counts:
		return slices.Max(known)
	}
	sum := 0.0
	for _, v := range known {
		sum += v
	}
	return sum / float64(len(known))
}

// text formats a value; a dash where it is not known.
func (p *plot) text(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return p.unit.format(v)
}

// last returns the last value that is known.
func (p *plot) last(values []float64) string {
	for i := len(values) - 1; i >= 0; i-- {
		if !math.IsNaN(values[i]) {
			return p.unit.format(values[i])
		}
	}
	return "–"
}

// describe says in words what a chart shows.
func (p *plot) describe(keys []legend, values [][]float64, s *series.Series) string {
	var words []string
	for i, key := range keys {
		words = append(words, strings.TrimSpace(key.Name+" "+key.Value+" "+key.Note)+", at most "+
			p.unit.format(highest(values[i])))
	}
	return p.title + " over " + formatDuration(s.To.Sub(s.From)) + ": " + strings.Join(words, "; ")
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

// niceSeconds is niceTop for a duration: whole minutes, hours and days.
func niceSeconds(v float64) float64 {
	const day = 24 * 3600
	if v <= 40 {
		return niceTop(v)
	}
	for _, top := range []float64{60, 120, 240, 600, 1200, 3600, 2 * 3600, 4 * 3600, day / 2, day} {
		if v <= top {
			return top
		}
	}
	return niceTop(v/day) * day
}

// formatCount formats a number of jobs, which may be a rate: two digits of one that is not whole.
func formatCount(v float64) string {
	switch {
	case v >= 10 || v == math.Trunc(v):
		return number(int64(math.Round(v)))
	case v < 1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// formatSeconds formats seconds for people.
func formatSeconds(v float64) string {
	return formatDuration(time.Duration(v * float64(time.Second)))
}
