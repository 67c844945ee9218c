package admin

import (
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

// What queues have done is read from the records that each node adds to (package series). A metric
// is a function of a step of the time; where it has no value there, as a quantile without jobs, the
// point is null and not 0.

// seriesRoutes are the routes of series.
func (a *API) seriesRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/series", action: "series.show",
		handle: a.showSeries,
		query:  []string{"metric", "contract", "queue", "from", "to", "step"}}}
}

// formatQuantile returns a quantile in seconds, null where nothing was counted.
func formatQuantile(h *engine.Durations, q float64) []byte {
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
	if err := firstError(err, readText(c, "contract", &q.JobType),
		readText(c, "queue", &q.Queue), readRange(c, "from", &q.From, "to", &q.To),
		readStep(c, &q.Step)); err != nil {
		return err
	}
	m := series.FindMetric(name)
	switch {
	case m == nil:
		return invalid("metric is required: one of " + strings.Join(series.MetricNames(), ", "))
	case q.Queue != "" && q.JobType == "":
		return invalid("queue needs the contract that it belongs to")
	case q.Queue != "" && m.OfJobTypes:
		return invalid(name + " is known of contracts, not of queues")
	case q.JobType != "" && !slices.Contains(a.Engine.JobTypes(), q.JobType):
		return invalid("contract must be one of " + strings.Join(a.Engine.JobTypes(), ", "))
	}
	s, err := a.Series.Read(c.Context(), q)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 256+64*len(s.Points)))
	o.Text("metric", name)
	o.Optional("contract", q.JobType)
	o.Optional("queue", q.Queue)
	o.Time("from", s.From)
	o.Time("to", s.To)
	o.Text("step", setting.FormatDuration(s.Step))
	o.Objects("points", len(s.Points), func(i int, o *strictjson.Object) {
		o.Time("at", s.Points[i].At)
		value := null
		if n, known := m.Of(&s.Points[i]); known {
			value = formatNumber(n)
		}
		o.Raw("value", value)
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
