package admin

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/setting"
)

// seriesRoutes are the routes of series.
func (a *API) seriesRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/series", action: "series.show",
		handle: a.showSeries,
		query:  []string{"metric", "contract", "queue", "from", "to", "step"}}}
}

// metric is a number of a point.
type metric struct {
	// value returns the number in JSON; null where there is none.
	value func(*series.Point) []byte
	// perContract says that it is not known of queues.
	perContract bool
}

// metrics are those of AD-060, by name.
var metrics = map[string]metric{
	"submitted": {value: count(func(b *series.Bucket) uint64 { return b.Submitted })},
	"started":   {value: count(func(b *series.Bucket) uint64 { return b.Started })},
	"succeeded": {value: count(func(b *series.Bucket) uint64 { return b.Succeeded })},
	"failed":    {value: count(func(b *series.Bucket) uint64 { return b.Failed })},
	"depth":     {value: seen(func(b *series.Bucket) float64 { return float64(b.Depth) })},
	"oldest":    {value: seen(func(b *series.Bucket) float64 { return b.Oldest.Seconds() })},
	"wait_p50":  {value: quantile(waits, 0.5)},
	"wait_p95":  {value: quantile(waits, 0.95)},
	"run_p50":   {value: quantile(runs, 0.5)},
	"run_p95":   {value: quantile(runs, 0.95)},
	"requests": {value: count(func(b *series.Bucket) uint64 { return b.Requests }),
		perContract: true},
	"errors": {value: count(func(b *series.Bucket) uint64 { return b.Errors }), perContract: true},
}

func waits(b *series.Bucket) *engine.Histogram { return &b.Wait }
func runs(b *series.Bucket) *engine.Histogram  { return &b.Run }

// count makes a metric of what adds up in a step.
func count(of func(*series.Bucket) uint64) func(*series.Point) []byte {
	return func(p *series.Point) []byte { return strconv.AppendUint(nil, of(&p.Bucket), 10) }
}

// seen makes a metric of what is looked at now and then. In a step that is not over 0 may mean that
// it was not.
func seen(of func(*series.Bucket) float64) func(*series.Point) []byte {
	return func(p *series.Point) []byte {
		value := of(&p.Bucket)
		if p.Partial && value == 0 {
			return null
		}
		return formatNumber(value)
	}
}

// quantile makes a metric of durations, in seconds.
func quantile(of func(*series.Bucket) *engine.Histogram, q float64) func(*series.Point) []byte {
	return func(p *series.Point) []byte { return formatQuantile(of(&p.Bucket), q) }
}

// formatQuantile returns a quantile in seconds, null where nothing was counted.
func formatQuantile(h *engine.Histogram, q float64) []byte {
	d, counted := h.Quantile(q)
	if !counted {
		return null
	}
	return formatNumber(d.Seconds())
}

var null = []byte("null")

// formatNumber returns a number as JSON, with a precision of a millionth.
func formatNumber(n float64) []byte {
	text := strconv.AppendFloat(nil, n, 'f', 6, 64)
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	if text[len(text)-1] == '.' {
		text = text[:len(text)-1]
	}
	return text
}

// showSeries is GET /admin/v1/series (AD-060).
func (a *API) showSeries(c *httpapi.Call) error {
	var q series.Query
	name, _, err := c.Query("metric")
	if err := firstError(err, readText(c, "contract", &q.Contract),
		readText(c, "queue", &q.Queue), readTime(c, "from", &q.From), readTime(c, "to", &q.To),
		readStep(c, &q.Step)); err != nil {
		return err
	}
	m, known := metrics[name]
	switch {
	case !known:
		return invalid("metric is required: one of " +
			strings.Join(slices.Sorted(maps.Keys(metrics)), ", "))
	case q.Queue != "" && q.Contract == "":
		return invalid("queue needs the contract that it belongs to")
	case q.Queue != "" && m.perContract:
		return invalid(name + " is known of contracts, not of queues")
	case q.Contract != "" && !slices.Contains(a.Engine.Contracts(), q.Contract):
		return invalid("contract must be one of " + strings.Join(a.Engine.Contracts(), ", "))
	}
	s, err := a.Series.Read(c.Context(), q)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 256+64*len(s.Points)))
	o.Text("metric", name)
	o.Optional("contract", q.Contract)
	o.Optional("queue", q.Queue)
	o.Time("from", s.From)
	o.Time("to", s.To)
	o.Text("step", setting.FormatDuration(s.Step))
	o.Objects("points", len(s.Points), func(i int, o *strictjson.Object) {
		o.Time("at", s.Points[i].At)
		o.Raw("value", m.value(&s.Points[i]))
		if s.Points[i].Partial {
			o.Bool("partial", true)
		}
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// readStep reads the length of steps, if it is given.
func readStep(c *httpapi.Call, step *time.Duration) error {
	text := ""
	if err := readText(c, "step", &text); err != nil || text == "" {
		return err
	}
	d, ok := setting.ParseDuration(text)
	if !ok || d <= 0 {
		return invalid("step must be a duration such as 10s, 1m or 1h")
	}
	*step = d
	return nil
}
