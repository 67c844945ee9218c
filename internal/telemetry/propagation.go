package telemetry

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The headers that a trace travels in (W3C Trace Context).
const (
	TraceParent = "Traceparent"
	TraceState  = "Tracestate"
)

// maxTraceState is how much of a tracestate is kept and sent on: what the specification asks for at
// least.
const maxTraceState = 512

// Extract returns ctx at the place that the header of a request names. A header that is wrong, or
// there twice, names none.
func Extract(ctx context.Context, h http.Header) context.Context {
	if len(h[TraceParent]) != 1 {
		return ctx
	}
	return resume(ctx, h[TraceParent][0], strings.Join(h[TraceState], ","))
}

// Inject writes the place in ctx into the header of a request; without one the header stays as it
// is.
func Inject(ctx context.Context, h http.Header) {
	parent, state, _ := strings.Cut(Carrier(ctx), " ")
	if parent == "" {
		return
	}
	h.Set(TraceParent, parent)
	if state != "" {
		h.Set(TraceState, state)
	}
}

// Carrier returns the place in ctx as text that is kept with a job: a traceparent and, after a
// space, the tracestate if there is one. It is empty where there is no place.
func Carrier(ctx context.Context) string {
	spanContext := trace.SpanContextFromContext(ctx)
	if !spanContext.IsValid() {
		return ""
	}
	flags := "-00"
	if spanContext.IsSampled() {
		flags = "-01"
	}
	parent := "00-" + spanContext.TraceID().String() + "-" + spanContext.SpanID().String() + flags
	if state := truncateTraceState(spanContext.TraceState().String()); state != "" {
		return parent + " " + state
	}
	return parent
}

// truncateTraceState leaves out the last members of a tracestate that is too long: the oldest ones.
func truncateTraceState(state string) string {
	for len(state) > maxTraceState {
		state = state[:max(strings.LastIndexByte(state, ','), 0)]
	}
	return state
}

// Resume returns ctx at the place that a Carrier names: what is started from it goes on from there.
// A wrong one is taken for none.
func Resume(ctx context.Context, carrier string) context.Context {
	parent, state, _ := strings.Cut(carrier, " ")
	return resume(ctx, parent, state)
}

func resume(ctx context.Context, parent, state string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx,
		propagation.MapCarrier{"traceparent": parent, "tracestate": state})
}
