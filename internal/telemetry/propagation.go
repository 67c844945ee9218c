package telemetry

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The headers of a trace (W3C Trace Context).
const (
	TraceParent = "Traceparent"
	TraceState  = "Tracestate"
)

// maxTraceState bounds the tracestate that is stored and sent on, in bytes. The specification asks
// for at least this much.
const maxTraceState = 512

// Extract returns ctx with the span that the header of a request names. A header that is invalid
// or given twice is ignored.
func Extract(ctx context.Context, h http.Header) context.Context {
	if len(h[TraceParent]) != 1 {
		return ctx
	}
	return resume(ctx, h[TraceParent][0], strings.Join(h[TraceState], ","))
}

// Inject writes the span of ctx into the header of a request. Without a span it leaves the header
// as it is.
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

// Carrier returns the span of ctx as text to store with a job: a traceparent and, after a space,
// the tracestate if there is one. It is empty where ctx has no span.
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

// truncateTraceState drops the last, and so oldest, members of a tracestate that is too long.
func truncateTraceState(state string) string {
	for len(state) > maxTraceState {
		state = state[:max(strings.LastIndexByte(state, ','), 0)]
	}
	return state
}

// TraceID returns the id of the trace that a Carrier names, "" where it names none.
func TraceID(carrier string) string {
	spanContext := trace.SpanContextFromContext(Resume(context.Background(), carrier))
	if !spanContext.IsValid() {
		return ""
	}
	return spanContext.TraceID().String()
}

// Resume returns ctx with the span that a Carrier names, so that spans started from it continue
// that trace. An invalid carrier is ignored.
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
