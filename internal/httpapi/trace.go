package httpapi

import (
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/telemetry"
)

// trace continues the caller's trace, if the request carries a valid one, and starts the span of
// the request. The span gets its final name when the route is known.
func (c *Call) trace() {
	given := c.Context()
	ctx := telemetry.Extract(given, c.Request.Header)
	if c.router.Tracing.Enabled() {
		ctx, c.span = c.router.Tracing.StartServer(ctx, "unmatched")
	}
	if ctx != given {
		c.Request = c.Request.WithContext(ctx)
	}
}

// endTrace completes the span with route, status and attributes.
func (c *Call) endTrace() {
	if c.span == nil {
		return
	}
	defer c.span.End()
	if !c.span.IsRecording() {
		return
	}
	attrs := []attribute.KeyValue{attribute.String("http.request.method", c.Request.Method),
		attribute.Int("http.response.status_code", c.status),
		attribute.String(telemetry.RequestID, c.RequestID())}
	if c.Route != nil {
		name := c.Route.Action
		if name == "" {
			name = c.Route.Method + " " + c.Route.Pattern
		}
		c.span.SetName(name)
		attrs = append(attrs, attribute.String("http.route", c.Route.Pattern))
	}
	for _, a := range c.attrs() {
		attrs = append(attrs, toAttribute(a))
	}
	c.span.SetAttributes(attrs...)
	if c.status >= http.StatusInternalServerError || c.status == 0 {
		telemetry.FailSpan(c.span, http.StatusText(c.status))
	}
}

func toAttribute(a slog.Attr) attribute.KeyValue {
	return attribute.String(a.Key, a.Value.String())
}
