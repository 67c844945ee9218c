package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func testChart() Chart {
	return Chart{Title: "Claims & <ends>", Note: "a machine", X: Axis{Label: "jobs"},
		Y: Axis{Label: "ms"}, Series: []Series{
			{Name: "SQLite", Points: []Point{{1000, 0.5}, {10_000_000, 0.75}}},
			{Name: "PostgreSQL", Dashed: true, Points: []Point{{1000, 3}}},
		}}
}

func TestSVGIsWellFormedAndHoldsItsPoints(t *testing.T) {
	t.Parallel()
	svg := testChart().SVG()
	circles, texts := 0, ""
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts += string(token) + "\n"
		case xml.StartElement:
			if token.Name.Local != "circle" {
				continue
			}
			circles++
			for _, a := range token.Attr {
				v, err := strconv.ParseFloat(a.Value, 64)
				inside := (a.Name.Local == "cx" && v > frameLeft && v < frameRight) ||
					(a.Name.Local == "cy" && v > frameTop && v < frameBottom)
				if strings.HasPrefix(a.Name.Local, "c") && (err != nil || !inside) {
					t.Errorf("a point has %s %s, outside of the frame", a.Name.Local, a.Value)
				}
			}
		}
	}
	if circles != 3 {
		t.Errorf("%d points are drawn, want 3", circles)
	}
	for _, want := range []string{"Claims & <ends>", "SQLite", "PostgreSQL", "jobs", "ms", "10 k",
		"a machine", "SQLite: 0.5 at 1 k, 0.75 at 10 M.", "prefers-color-scheme:dark"} {
		if !strings.Contains(texts, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

func TestChartIsWrittenWithItsNumbers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "claims.svg")
	if err := testChart().Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(strings.TrimSuffix(path, ".svg") + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	want := "series,jobs,ms\nSQLite,1000,0.5\nSQLite,1e+07,0.75\nPostgreSQL,1000,3\n"
	if string(got) != want {
		t.Errorf("numbers = %q, want %q", got, want)
	}
}

func TestScaleIsLogarithmic(t *testing.T) {
	t.Parallel()
	s := newScale([]float64{1, 100}, 0, 200)
	if got := s.at(10); math.Abs(got-100) > 1e-9 {
		t.Errorf("10 between 1 and 100 is at %v, want the middle", got)
	}
	for _, values := range [][]float64{nil, {5}, {5, 5.1}, {1, 4}, {100, 1 << 20}} {
		s := newScale(values, 0, 200)
		if n := len(Axis{}.ticks(s)); n < 3 || n > 12 {
			t.Errorf("values %v: %d ticks, want 3 to 12", values, n)
		}
	}
}

func TestShortNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		got, want string
	}{
		{shortNumber(0.5), "0.5"}, {shortNumber(100), "100"}, {shortNumber(1500), "1.5 k"},
		{shortNumber(5e7), "50 M"}, {shortBytes(100), "100 B"}, {shortBytes(4096), "4 KiB"},
		{shortBytes(1 << 20), "1 MiB"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestLatencyChart(t *testing.T) {
	t.Parallel()
	samples := make([]time.Duration, 1000)
	for i := range samples {
		samples[len(samples)-1-i] = time.Duration(i+1) * time.Millisecond
	}
	// Two rounds count together; a phase of another name does not.
	track := &Track{Case: Case{Name: "relay-start"}, Rounds: [][]Phase{
		{{Name: startedFromIntended, Latency: samples[:400]}, {Name: phaseInsert,
			Latency: []time.Duration{time.Hour}}},
		{{Name: startedFromIntended, Latency: samples[400:]}},
	}}
	other := &Track{Case: Case{Name: "river"}, Rounds: [][]Phase{{{Name: phaseWork}}}}
	got, err := latencyChart([]*Track{track, other}, Machine{}).CSV()
	if err != nil {
		t.Fatal(err)
	}
	want := "series,percentile,ms\n"
	for _, share := range []string{"50,500", "75,750", "90,900", "95,950", "99,990", "99.5,995",
		"99.9,999"} { // a thousand samples do not show more
		want += "relay-start," + share + "\n"
	}
	if got != want {
		t.Errorf("numbers:\n%swant\n%s", got, want)
	}
}

// growingLine fails at one size.
type growingLine struct {
	failAt int
	asked  []int
	closed bool
}

func (g *growingLine) At(_ context.Context, size int) (float64, error) {
	g.asked = append(g.asked, size)
	if size == g.failAt {
		return 0, errors.New("the disk is slow")
	}
	return float64(len(g.asked)), nil
}

func (g *growingLine) Close(context.Context) error {
	g.closed = true
	return nil
}

// A line that ends early is drawn as far as it came, and stays in the picture when the other
// database is measured.
func TestCurveIsDrawnAsFarAsItCame(t *testing.T) {
	t.Parallel()
	lite := &growingLine{failAt: 100}
	env, err := newEnv(t.TempDir(), 1, Tuning{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := curveSettings{out: t.TempDir(), jobs: 1, rounds: 2, full: true, timeout: time.Minute,
		stderr: io.Discard, chosen: []curve{{name: "grow", title: "Grow",
			x: Axis{Label: "size"}, y: Axis{Label: "rate"}, sizes: []int{0, 10, 100, 1000},
			setup: func(_ context.Context, _ *Env, onPostgres bool, _ int) (curveLine, error) {
				if onPostgres {
					return nil, skipf("no PostgreSQL")
				}
				return lite, nil
			}}}}
	err = s.draw(t.Context(), env, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "grow on SQLite: 100: the disk is slow") {
		t.Errorf("err = %v, want the curve, the line, the size and the cause", err)
	}
	if want := []int{0, 0, 10, 10, 100}; !slices.Equal(lite.asked, want) || !lite.closed {
		t.Errorf("asked for %v, closed %v; want %v and closed", lite.asked, lite.closed, want)
	}
	path := filepath.Join(s.out, "grow.csv")
	wantFile(t, path, "series,size,rate\nSQLite,1,1.5\nSQLite,10,3.5\n")

	s.on, s.chosen[0].setup = "postgres", func(context.Context, *Env, bool, int) (curveLine, error) {
		return &growingLine{failAt: -1}, nil
	}
	if err := s.draw(t.Context(), env, io.Discard); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "series,size,rate\nSQLite,1,1.5\nSQLite,10,3.5\n"+
		"PostgreSQL,1,1.5\nPostgreSQL,10,3.5\nPostgreSQL,100,5.5\nPostgreSQL,1000,7.5\n")
	picture, err := os.ReadFile(filepath.Join(s.out, "grow.svg"))
	if err != nil || !strings.Contains(string(picture), "SQLite is of an earlier run") {
		t.Errorf("the picture does not say that a line is older (%v):\n%s", err, picture)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s has %q (%v), want %q", path, got, err, want)
	}
}

func TestCurveSizes(t *testing.T) {
	t.Parallel()
	c := curve{sizes: []int{1, 2, 3, 4}, defaultSize: 2, maxLite: 1}
	for _, tc := range []struct {
		name       string
		maxSize    int
		full       bool
		onPostgres bool
		want       int
	}{
		{"the usual ones", 0, false, true, 2},
		{"full", 0, true, true, 4},
		{"max", 3, false, true, 3},
		{"max bounds full", 3, true, true, 3},
		{"SQLite has one node", 0, true, false, 1},
	} {
		if got := c.upTo(tc.maxSize, tc.full, tc.onPostgres); len(got) != tc.want {
			t.Errorf("%s: sizes %v, want %d of them", tc.name, got, tc.want)
		}
	}
	if _, err := parseCurves([]string{"hstory"}, io.Discard); err == nil {
		t.Error("an unknown curve is taken")
	}
}
