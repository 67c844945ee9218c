package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Chart is a picture of lines over two axes, with its numbers beside it.
type Chart struct {
	Title  string
	Note   string // below the picture: how it was made
	X, Y   Axis
	Series []Series
	Bands  []Band
}

// Band marks a part of the x axis.
type Band struct {
	From, To float64
	Text     string
}

// Axis says what its numbers are and how they are written.
type Axis struct {
	Label  string
	Linear bool                 // from zero on; else logarithmic
	Ticks  []Tick               // nil: powers of ten, and between them where there are few
	Text   func(float64) string // nil: shortNumber
	Raw    func(float64) string // in the file of numbers; nil: the number
}

// Tick is a labelled place on an axis.
type Tick struct {
	At   float64
	Text string
}

// Series is one line.
type Series struct {
	Name   string
	Dashed bool
	Points []Point
}

// Point is one measured value; on a logarithmic axis it is above zero.
type Point struct{ X, Y float64 }

// The picture's size, and the frame in it.
const (
	chartWidth, chartHeight   = 720.0, 420.0
	frameLeft, frameTop       = 70.0, 44.0
	frameRight, frameBottom   = 560.0, 350.0
	lineHeight, tickTextShift = 18.0, 4.0
)

// maxDots is the number of points up to which each of a line is drawn as a dot.
const maxDots = 60

// chartColors are readable on white and on black.
var chartColors = []string{"#2f7ed8", "#d1681c", "#2e9a57", "#b0479e", "#8a7a12", "#6b6fd6"}

// chartStyle follows the reader's choice of light or dark.
const chartStyle = `text{font:13px system-ui,sans-serif;fill:#222}.title{font-size:16px;` +
	`font-weight:600}.small{font-size:11px;fill:#666}.grid{stroke:#ddd}.back{fill:#fff}` +
	`.band{fill:#88888830}.frame{fill:none;stroke:#888}.line{fill:none;stroke-width:2}` +
	`@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#999}.grid{stroke:#333}` +
	`.back{fill:#111}.frame{stroke:#777}}`

// Write writes the picture to path and its numbers beside it, with the ending .csv.
func (c Chart) Write(path string) error {
	table, err := c.CSV()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(c.SVG()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(tableOf(path), []byte(table), 0o644)
}

// CSV is one line for each point.
func (c Chart) CSV() (string, error) {
	var text strings.Builder
	w := csv.NewWriter(&text)
	lines := [][]string{{"series", c.X.Label, c.Y.Label}}
	for _, s := range c.Series {
		for _, p := range s.Points {
			lines = append(lines, []string{s.Name, c.X.raw(p.X), c.Y.raw(p.Y)})
		}
	}
	err := w.WriteAll(lines)
	return text.String(), err
}

// addEarlier adds the lines that the picture at path has and this one does not, and says so. The
// lines of all pictures are in one order, so that each keeps its color.
func (c *Chart) addEarlier(path string) error {
	earlier, err := seriesOf(path)
	for _, line := range earlier {
		if !slices.ContainsFunc(c.Series, func(s Series) bool { return s.Name == line.Name }) {
			c.Series = append(c.Series, line)
			c.Note += "; " + line.Name + " is of an earlier run"
		}
	}
	slices.SortFunc(c.Series, func(a, b Series) int { return strings.Compare(b.Name, a.Name) })
	return err
}

// seriesOf reads the lines of the numbers that Write has left beside the picture path. There are
// none where there is no such file.
func seriesOf(path string) ([]Series, error) {
	text, err := os.ReadFile(tableOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tableOf(path), err)
	}
	var all []Series
	for _, row := range rows[min(1, len(rows)):] {
		x, errX := strconv.ParseFloat(row[1], 64)
		y, errY := strconv.ParseFloat(row[2], 64)
		if err := errors.Join(errX, errY); err != nil {
			return nil, fmt.Errorf("%s: %w", tableOf(path), err)
		}
		if len(all) == 0 || all[len(all)-1].Name != row[0] {
			all = append(all, Series{Name: row[0]})
		}
		last := &all[len(all)-1]
		last.Points = append(last.Points, Point{X: x, Y: y})
	}
	return all, nil
}

// tableOf is the file with the numbers of a picture.
func tableOf(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ".csv" }

// SVG draws the picture.
func (c Chart) SVG() string {
	x := c.X.scale(c.values(func(p Point) float64 { return p.X }), frameLeft, frameRight)
	y := c.Y.scale(c.values(func(p Point) float64 { return p.Y }), frameBottom, frameTop)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img">`+
		"\n<title>%s</title>\n<desc>%s</desc>\n<style>%s</style>\n", chartWidth, chartHeight,
		escapeXML(c.Title), escapeXML(c.describe()), chartStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%.0f" height="%.0f"/>`+"\n", chartWidth, chartHeight)
	drawText(&b, "title", "start", frameLeft, 26, c.Title)
	c.drawBands(&b, x)
	c.drawAxes(&b, x, y)
	for i, s := range c.Series {
		drawSeries(&b, s, chartColors[i%len(chartColors)], x, y)
		drawLegend(&b, s, chartColors[i%len(chartColors)], frameTop+10+lineHeight*float64(i))
	}
	drawText(&b, "small", "start", frameLeft, chartHeight-12, c.Note)
	b.WriteString("</svg>\n")
	return b.String()
}

func (c Chart) values(of func(Point) float64) []float64 {
	var all []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			all = append(all, of(p))
		}
	}
	return all
}

// describe says the picture in words, for those who cannot see it.
func (c Chart) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s over %s.", c.Y.Label, c.X.Label)
	for _, s := range c.Series {
		fmt.Fprintf(&b, " %s:", s.Name)
		for i, p := range s.Points {
			fmt.Fprintf(&b, "%s %s at %s", []string{"", ","}[min(i, 1)], c.Y.text(p.Y),
				c.X.text(p.X))
		}
		b.WriteByte('.')
	}
	return b.String()
}

func (c Chart) drawBands(b *strings.Builder, x scale) {
	for _, band := range c.Bands {
		from, to := x.at(band.From), x.at(band.To)
		fmt.Fprintf(b, `<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", from,
			frameTop, to-from, frameBottom-frameTop)
		drawText(b, "small", "middle", (from+to)/2, frameTop+lineHeight, band.Text)
	}
}

func (c Chart) drawAxes(b *strings.Builder, x, y scale) {
	for _, t := range c.X.ticks(x) {
		at := x.at(t.At)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", at, at,
			frameTop, frameBottom)
		drawText(b, "", "middle", at, frameBottom+lineHeight, t.Text)
	}
	for _, t := range c.Y.ticks(y) {
		at := y.at(t.At)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n",
			frameLeft, frameRight, at, at)
		drawText(b, "", "end", frameLeft-6, at+tickTextShift, t.Text)
	}
	fmt.Fprintf(b, `<rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
		frameLeft, frameTop, frameRight-frameLeft, frameBottom-frameTop)
	drawText(b, "", "middle", (frameLeft+frameRight)/2, frameBottom+2*lineHeight, c.X.Label)
	middle := (frameTop + frameBottom) / 2
	fmt.Fprintf(b, `<text text-anchor="middle" transform="translate(16 %.1f) rotate(-90)">%s`+
		"</text>\n", middle, escapeXML(c.Y.Label))
}

func drawSeries(b *strings.Builder, s Series, color string, x, y scale) {
	var line []string
	for _, p := range s.Points {
		line = append(line, fmt.Sprintf("%.1f,%.1f", x.at(p.X), y.at(p.Y)))
	}
	fmt.Fprintf(b, `<polyline class="line" stroke="%s"%s points="%s"/>`+"\n", color, s.dashes(),
		strings.Join(line, " "))
	if len(s.Points) > maxDots {
		return
	}
	for _, p := range s.Points {
		fmt.Fprintf(b, `<circle fill="%s" r="3" cx="%.1f" cy="%.1f"/>`+"\n", color, x.at(p.X),
			y.at(p.Y))
	}
}

func drawLegend(b *strings.Builder, s Series, color string, at float64) {
	fmt.Fprintf(b, `<line class="line" stroke="%s"%s x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n",
		color, s.dashes(), frameRight+10, frameRight+30, at, at)
	drawText(b, "small", "start", frameRight+35, at+tickTextShift, s.Name)
}

func (s Series) dashes() string {
	if s.Dashed {
		return ` stroke-dasharray="5 4"`
	}
	return ""
}

func drawText(b *strings.Builder, class, anchor string, x, y float64, text string) {
	fmt.Fprintf(b, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class,
		anchor, x, y, escapeXML(text))
}

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// scale places values between two edges, by their logarithm unless it is linear.
type scale struct {
	low, high, from, to float64
	linear              bool
}

// scale covers all values of the axis.
func (a Axis) scale(values []float64, from, to float64) scale {
	if !a.Linear {
		return newScale(values, from, to)
	}
	high := 1.0
	for _, v := range values {
		high = max(high, v)
	}
	return scale{high: high * 1.02, from: from, to: to, linear: true}
}

// newScale covers all values, with a little more on both sides.
func newScale(values []float64, from, to float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	if len(values) == 0 {
		low, high = 1, 10
	}
	if high < low*4 { // a flat line stays one
		low, high = low/2, high*2
	}
	return scale{low: low / 1.15, high: high * 1.15, from: from, to: to}
}

func (s scale) at(v float64) float64 {
	if s.linear {
		return s.from + (s.to-s.from)*(v-s.low)/(s.high-s.low)
	}
	return s.from + (s.to-s.from)*math.Log(v/s.low)/math.Log(s.high/s.low)
}

func (a Axis) text(v float64) string {
	if a.Text != nil {
		return a.Text(v)
	}
	return shortNumber(v)
}

func (a Axis) raw(v float64) string {
	if a.Raw != nil {
		return a.Raw(v)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// ticks are the places that are labelled: powers of ten, and more of them when fewer than three
// stand in the frame.
func (a Axis) ticks(s scale) []Tick {
	if a.Ticks != nil {
		return a.Ticks
	}
	if a.Linear {
		return a.linearTicks(s)
	}
	for _, digits := range [][]float64{{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 6, 7, 8}} {
		var ticks []Tick
		for e := math.Floor(math.Log10(s.low)); e <= math.Log10(s.high); e++ {
			for _, d := range digits {
				if v := d * math.Pow(10, e); v >= s.low && v <= s.high {
					ticks = append(ticks, Tick{v, a.text(v)})
				}
			}
		}
		if len(ticks) >= 3 {
			return ticks
		}
	}
	return nil
}

// linearTicks are four to ten round numbers in the frame, and zero.
func (a Axis) linearTicks(s scale) (ticks []Tick) {
	step := math.Pow(10, math.Floor(math.Log10(s.high)))
	for _, part := range []float64{2, 2.5, 2} {
		if s.high/step >= 4 {
			break
		}
		step /= part
	}
	for v := s.low; v <= s.high; v += step {
		ticks = append(ticks, Tick{v, a.text(v)})
	}
	return ticks
}

// shortNumber writes 1500 as 1.5 k.
func shortNumber(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e6, " M"}, {1e3, " k"}} {
		if v >= unit.size*0.9999 {
			return strconv.FormatFloat(v/unit.size, 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// shortBytes writes 1024 as 1 KiB.
func shortBytes(v float64) string {
	switch {
	case v >= 1<<20:
		return strconv.FormatFloat(v/(1<<20), 'g', 3, 64) + " MiB"
	case v >= 1<<10:
		return strconv.FormatFloat(v/(1<<10), 'g', 3, 64) + " KiB"
	default:
		return strconv.FormatFloat(v, 'g', 3, 64) + " B"
	}
}
