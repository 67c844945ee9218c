package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the outcome of a bench; its JSON is what --json writes.
type Report struct {
	Machine    Machine    `json:"machine"`
	Servers    []string   `json:"servers"`
	Reference  string     `json:"reference"`
	Jobs       int        `json:"jobs"`
	Rounds     int        `json:"rounds"`
	Clients    int        `json:"clients"`
	Tuning     Tuning     `json:"tuning"`
	StopReason string     `json:"cut_short,omitempty"`
	Cases      []CaseLine `json:"cases"`
}

// CaseLine is one case of a report.
type CaseLine struct {
	Name       string      `json:"name"`
	Summary    string      `json:"what"`
	Durability string      `json:"durability,omitempty"`
	SkipReason string      `json:"skipped,omitempty"`
	Failed     string      `json:"failed,omitempty"`
	Phases     []PhaseLine `json:"phases,omitempty"`
}

// PhaseLine is one row of the table.
type PhaseLine struct {
	Name    string          `json:"name"`
	Jobs    int             `json:"jobs"`
	Seconds []float64       `json:"seconds"` // per finished round
	Rate    Spread          `json:"rate"`
	Ratio   *Spread         `json:"ratio,omitempty"` // to the reference, paired by round
	Latency *LatencySummary `json:"latency,omitempty"`
}

// LatencySummary gives for each percentile the median of the rounds' values, so that one disturbed
// round does not decide; Max is the worst of all rounds.
type LatencySummary struct {
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// caseLines turns tracks into the cases of a report, with ratios to the track named ref where it
// has the same phase.
func caseLines(tracks []*Track, ref string) []CaseLine {
	var base *Track
	for _, t := range tracks {
		if t.Case.Name == ref {
			base = t
		}
	}
	all := make([]CaseLine, 0, len(tracks))
	for _, t := range tracks {
		line := CaseLine{
			Name: t.Case.Name, Summary: t.Case.Summary,
			Durability: t.Durability, SkipReason: t.SkipReason, Failed: t.Failed,
		}
		for _, name := range t.Phases() {
			line.Phases = append(line.Phases, phaseLine(t, base, name))
		}
		all = append(all, line)
	}
	return all
}

// reference is the case the ratios refer to: the wanted one, or the first that finished a round
// when the wanted one did not.
func reference(tracks []*Track, wanted string) string {
	fallback := ""
	for _, t := range tracks {
		finished := len(t.Phases()) > 0
		if finished && t.Case.Name == wanted {
			return wanted
		}
		if finished && fallback == "" {
			fallback = t.Case.Name
		}
	}
	return fallback
}

func phaseLine(t, base *Track, name string) PhaseLine {
	line := PhaseLine{Name: name, Rate: spreadOf(t.Rates(name))}
	var percentiles []Percentiles
	for _, p := range t.Each(name) {
		if p == nil {
			continue
		}
		line.Jobs = p.Jobs
		line.Seconds = append(line.Seconds, p.Took.Seconds())
		if len(p.Latency) > 0 {
			percentiles = append(percentiles, percentilesOf(p.Latency))
		}
	}
	line.Latency = latencySummary(percentiles)
	if base != nil {
		if ratio := spreadOf(ratios(t.Rates(name), base.Rates(name))); ratio.Rounds > 0 {
			line.Ratio = &ratio
		}
	}
	return line
}

func latencySummary(rounds []Percentiles) *LatencySummary {
	if len(rounds) == 0 {
		return nil
	}
	var summary LatencySummary
	medianOf := func(pick func(Percentiles) time.Duration) time.Duration {
		var values []float64
		for _, r := range rounds {
			values = append(values, float64(pick(r)))
			summary.Max = max(summary.Max, r.Max)
		}
		return time.Duration(median(values))
	}
	summary.P50 = medianOf(func(p Percentiles) time.Duration { return p.P50 })
	summary.P90 = medianOf(func(p Percentiles) time.Duration { return p.P90 })
	summary.P99 = medianOf(func(p Percentiles) time.Duration { return p.P99 })
	summary.P999 = medianOf(func(p Percentiles) time.Duration { return p.P999 })
	return &summary
}

// WriteText prints the report for people.
func (r Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "\nmachine: %s\n", r.Machine)
	for _, s := range r.Servers {
		fmt.Fprintf(w, "server:  %s\n", s)
	}
	fmt.Fprintln(w)
	for _, c := range r.Cases {
		fmt.Fprintf(w, "%s: %s\n", c.Name, c.Summary)
		switch {
		case c.SkipReason != "":
			fmt.Fprintf(w, "    SKIPPED: %s\n", c.SkipReason)
		case c.Durability != "":
			fmt.Fprintf(w, "    %s\n", c.Durability)
		}
		if c.Failed != "" {
			fmt.Fprintf(w, "    FAILED: %s\n", c.Failed)
		}
	}
	if !slices.ContainsFunc(r.Cases, func(c CaseLine) bool { return len(c.Phases) > 0 }) {
		fmt.Fprintln(w, "\nno case finished a round")
	} else if err := r.writeTable(w); err != nil {
		return err
	}
	if r.StopReason != "" {
		fmt.Fprintf(w, "\n%s; what stands above finished before\n", r.StopReason)
	}
	return nil
}

func (r Report) writeTable(w io.Writer) error {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	ratioTitle := "-"
	if r.Reference != "" {
		ratioTitle = "x " + r.Reference
	}
	fmt.Fprintf(table,
		"case\tphase\tjobs\trounds\tmedian/s\tmin-max/s\t%s\tmin-max\tp50\tp90\tp99\tp99.9\tmax\t\n",
		ratioTitle)
	for _, c := range r.Cases {
		for _, p := range c.Phases {
			cells := []string{
				c.Name, p.Name, fmt.Sprint(p.Jobs), fmt.Sprint(p.Rate.Rounds),
				fmt.Sprintf("%.0f", p.Rate.Median),
				fmt.Sprintf("%.0f-%.0f", p.Rate.Min, p.Rate.Max), "-", "-", "-", "-", "-", "-", "-",
			}
			if p.Ratio != nil {
				cells[6] = fmt.Sprintf("%.2f", p.Ratio.Median)
				cells[7] = fmt.Sprintf("%.2f-%.2f", p.Ratio.Min, p.Ratio.Max)
			}
			if p.Latency != nil {
				for i, d := range []time.Duration{p.Latency.P50, p.Latency.P90, p.Latency.P99,
					p.Latency.P999, p.Latency.Max} {
					cells[8+i] = formatDuration(d)
				}
			}
			fmt.Fprintln(table, strings.Join(cells, "\t")+"\t")
		}
	}
	return table.Flush()
}

// formatDuration prints a duration in three or four digits.
func formatDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// WriteJSON writes the report to a file.
func (r Report) WriteJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
