package console

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/millrace/millrace/internal/series"
)

// A sparkline shows the last hour of a queue beside its figures: how many jobs were ready in each
// minute, and below that how many attempts ended, those that failed on top. Each of the two has a
// scale of its own, whose top the text says. The page of the queue has the same as charts with
// their tables.

// The size of a sparkline in its own units, and the heights of its two parts.
const (
	sparkStep             = 2
	sparkWidth            = sparkStep * series.TrendMinutes
	sparkReady, sparkEnds = 18, 11
	sparkGap              = 2
	sparkEnd              = sparkReady + sparkGap + sparkEnds
)

// spark is a sparkline, with what it shows in figures.
type spark struct {
	SVG               template.HTML
	MaxReady          uint64
	Succeeded, Failed uint64
}

// sparkOf draws the trend of a queue that has so many ready jobs now.
func sparkOf(t *series.Trend, ready int64) spark {
	var s spark
	maxEnds := uint64(0)
	now := &t[series.TrendMinutes-1]
	now.Depth = max(now.Depth, uint64(ready))
	for i := range t {
		s.MaxReady = max(s.MaxReady, t[i].Depth)
		s.Succeeded, s.Failed = s.Succeeded+t[i].Succeeded, s.Failed+t[i].Failed
		maxEnds = max(maxEnds, t[i].Succeeded+t[i].Failed)
	}
	var depth, succeeded, failed [series.TrendMinutes]span
	for i := range t {
		if t[i].Unknown {
			continue
		}
		good := heightOf(t[i].Succeeded, maxEnds, sparkEnds)
		depth[i] = span{sparkReady - heightOf(t[i].Depth, s.MaxReady, sparkReady), sparkReady}
		succeeded[i] = span{sparkEnd - good, sparkEnd}
		failed[i] = span{max(0, sparkEnd-good-heightOf(t[i].Failed, maxEnds, sparkEnds)), sparkEnd - good}
	}
	text := fmt.Sprintf("Last hour: at most %s ready, %s succeeded, %s failed", number(s.MaxReady),
		number(s.Succeeded), number(s.Failed))
	s.SVG = template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" `+
		`preserveAspectRatio="none" role="img" aria-label="%s"><title>%[3]s</title>`+
		`<path class="grid" d="M0 %[4]dH%[1]dM0 %[2]dH%[1]d"/>`+
		`<path class="depth" d="%[5]s"/><path class="ends" d="%[6]s"/><path class="fails" d="%[7]s"/>`+
		`</svg>`, sparkWidth, sparkEnd, text, sparkReady, steps(&depth), steps(&succeeded),
		steps(&failed)))
	return s
}

// heightOf returns the height of a value: one that is not zero is visible.
func heightOf(value, top uint64, height int) int {
	if value == 0 {
		return 0
	}
	return max(1, int(math.Round(float64(height)*float64(value)/float64(top))))
}

// span is the filled part of a minute, from one height to another.
type span struct{ from, to int }

// steps returns the path that fills the minutes. Minutes of the same height are one rectangle.
func steps(all *[series.TrendMinutes]span) string {
	var b strings.Builder
	for begin, end := 0, 0; begin < len(all); begin = end {
		for end = begin; end < len(all) && all[end] == all[begin]; {
			end++
		}
		if height := all[begin].to - all[begin].from; height > 0 {
			fmt.Fprintf(&b, "M%d %dh%dv%dh-%[3]dz", begin*sparkStep, all[begin].from,
				(end-begin)*sparkStep, height)
		}
	}
	return b.String()
}
