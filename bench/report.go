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
	Machine   Machine    `json:"machine"`
	Servers   []string   `json:"servers"`
	Reference string     `json:"reference"`
	Jobs      int        `json:"jobs"`
	Rounds    int        `json:"rounds"`
	Clients   int        `json:"clients"`
	Tuning    Tuning     `json:"tuning"`
	CutShort  string     `json:"cut_short,omitempty"`
	Cases     []CaseLine `json:"cases"`
}

// CaseLine is one case of a report.
type CaseLine struct {
	Name       string      `json:"name"`
	What       string      `json:"what"`
	Durability string      `json:"durability,omitempty"`
	Skipped    string      `json:"skipped,omitempty"`
	Failed     string      `json:"failed,omitempty"`
	Phases     []PhaseLine `json:"phases,omitempty"`
}

// PhaseLine is one row of the table.
type PhaseLine struct {
	Name    string        `json:"name"`
	Jobs    int           `json:"jobs"`
	Seconds []float64     `json:"seconds"` // per finished round
	Rate    Spread        `json:"rate"`
	Ratio   *Spread       `json:"ratio,omitempty"` // to the reference, paired by round
	Latency *LatencySheet `json:"latency,omitempty"`
}

// LatencySheet gives for each percentile the median of the rounds' values, so
// that one disturbed round does not decide; Max is the worst of all rounds.
type LatencySheet struct {
	P50 time.Duration `json:"p50_ns"`
	P90 time.Duration `json:"p90_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// lines turns tracks into the cases of a report, with ratios to the track named
// ref where it has the same phase.
func lines(tracks []*Track, ref string) []CaseLine {
	var base *Track
	for _, t := range tracks {
		if t.Case.Name == ref {
			base = t
		}
	}
	all := make([]CaseLine, 0, len(tracks))
	for _, t := range tracks {
		line := CaseLine{
			Name: t.Case.Name, What: t.Case.What,
			Durability: t.Durability, Skipped: t.Skipped, Failed: t.Failed,
		}
		for _, name := range t.Phases() {
			line.Phases = append(line.Phases, phaseLine(t, base, name))
		}
		all = append(all, line)
	}
	return all
}

// reference is the case the ratios refer to: the wanted one, or the first that
// finished a round when the wanted one did not.
func reference(tracks []*Track, wanted string) string {
	instead := ""
	for _, t := range tracks {
		finished := len(t.Phases()) > 0
		if finished && t.Case.Name == wanted {
			return wanted
		}
		if finished && instead == "" {
			instead = t.Case.Name
		}
	}
	return instead
}

func phaseLine(t, base *Track, name string) PhaseLine {
	line := PhaseLine{Name: name, Rate: spreadOf(t.Rates(name))}
	var sheets []Percentiles
	for _, p := range t.Each(name) {
		if p == nil {
			continue
		}
		line.Jobs = p.Jobs
		line.Seconds = append(line.Seconds, p.Took.Seconds())
		if len(p.Latency) > 0 {
			sheets = append(sheets, percentilesOf(p.Latency))
		}
	}
	line.Latency = latencySheet(sheets)
	if base != nil {
		if ratio := spreadOf(ratios(t.Rates(name), base.Rates(name))); ratio.Rounds > 0 {
			line.Ratio = &ratio
		}
	}
	return line
}

func latencySheet(rounds []Percentiles) *LatencySheet {
	if len(rounds) == 0 {
		return nil
	}
	var sheet LatencySheet
	middle := func(pick func(Percentiles) time.Duration) time.Duration {
		var values []float64
		for _, r := range rounds {
			values = append(values, float64(pick(r)))
			sheet.Max = max(sheet.Max, r.Max)
		}
		return time.Duration(median(values))
	}
	sheet.P50 = middle(func(p Percentiles) time.Duration { return p.P50 })
	sheet.P90 = middle(func(p Percentiles) time.Duration { return p.P90 })
	sheet.P99 = middle(func(p Percentiles) time.Duration { return p.P99 })
	return &sheet
}

// WriteText prints the report for people.
func (r Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "\nmachine: %s\n", r.Machine)
	for _, s := range r.Servers {
		fmt.Fprintf(w, "server:  %s\n", s)
	}
	fmt.Fprintln(w)
	for _, c := range r.Cases {
		fmt.Fprintf(w, "%s: %s\n", c.Name, c.What)
		switch {
		case c.Skipped != "":
			fmt.Fprintf(w, "    SKIPPED: %s\n", c.Skipped)
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
	if r.CutShort != "" {
		fmt.Fprintf(w, "\n%s; what stands above finished before\n", r.CutShort)
	}
	return nil
}

func (r Report) writeTable(w io.Writer) error {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	ratioHead := "-"
	if r.Reference != "" {
		ratioHead = "x " + r.Reference
	}
	fmt.Fprintf(table, "case\tphase\tjobs\trounds\tmedian/s\tmin-max/s\t%s\tmin-max\tp50\tp99\tmax\t\n", ratioHead)
	for _, c := range r.Cases {
		for _, p := range c.Phases {
			cells := []string{
				c.Name, p.Name, fmt.Sprint(p.Jobs), fmt.Sprint(p.Rate.Rounds),
				fmt.Sprintf("%.0f", p.Rate.Median), fmt.Sprintf("%.0f-%.0f", p.Rate.Min, p.Rate.Max),
				"-", "-", "-", "-", "-",
			}
			if p.Ratio != nil {
				cells[6] = fmt.Sprintf("%.2f", p.Ratio.Median)
				cells[7] = fmt.Sprintf("%.2f-%.2f", p.Ratio.Min, p.Ratio.Max)
			}
			if p.Latency != nil {
				cells[8], cells[9], cells[10] = short(p.Latency.P50), short(p.Latency.P99), short(p.Latency.Max)
			}
			fmt.Fprintln(table, strings.Join(cells, "\t")+"\t")
		}
	}
	return table.Flush()
}

// short prints a duration in three or four digits.
func short(d time.Duration) string {
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
