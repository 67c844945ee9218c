package telemetry

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// Bounds of what is on its way to the collector. What comes while the queue is
// full is dropped: nobody waits for a collector.
const (
	maxQueuedSpans  = 8192
	maxSpanBatch    = 512
	spanBatchDelay  = 2 * time.Second
	spanSendTimeout = 5 * time.Second
)

// Tracing is where spans go. Without a collector, and as nil, it makes none and
// costs next to nothing; the trace of a caller is handed on all the same.
//
// A job keeps the place it was submitted from as its Trace (Carrier), and what
// happens to it later goes on from there (Resume), on whatever node.
type Tracing struct {
	tracer       trace.Tracer
	provider     *sdktrace.TracerProvider
	cancelExport context.CancelFunc // ends what is being sent
}

// NewTracing makes a Tracing that sends to the collector at endpoint, a URL of
// OTLP over HTTP such as http://127.0.0.1:4318; with none it makes no spans.
// part is told whether spans get there; nil tells nobody. The attributes describe this process.
// What has no parent is always recorded, what has one as its parent is.
func NewTracing(ctx context.Context, endpoint string, part *outage.Part,
	attrs ...attribute.KeyValue) (*Tracing, error) {
	if endpoint == "" {
		return &Tracing{}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(tracesURL(endpoint)),
		otlptracehttp.WithTimeout(spanSendTimeout),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true,
			InitialInterval: time.Second,
			MaxInterval:     spanSendTimeout, MaxElapsedTime: 4 * spanSendTimeout}))
	if err != nil {
		return nil, fmt.Errorf("telemetry: the collector of traces: %w", err)
	}
	exportCtx, cancelExport := context.WithCancel(context.Background())
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(attrs...)),
		sdktrace.WithBatcher(&reportingExporter{SpanExporter: exporter, part: part, ctx: exportCtx},
			sdktrace.WithMaxQueueSize(maxQueuedSpans),
			sdktrace.WithMaxExportBatchSize(maxSpanBatch),
			sdktrace.WithBatchTimeout(spanBatchDelay),
			sdktrace.WithExportTimeout(5*spanSendTimeout)))
	return &Tracing{tracer: provider.Tracer("github.com/millrace/millrace"), provider: provider,
		cancelExport: cancelExport}, nil
}

// tracesURL is the URL of the traces of an endpoint: that itself when it has a
// path.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err == nil && (u.Path == "" || u.Path == "/") {
		u.Path = "/v1/traces"
		return u.String()
	}
	return endpoint
}

// Enabled reports whether spans are made.
func (t *Tracing) Enabled() bool { return t != nil && t.tracer != nil }

// StartSpan begins a span of what this process does by itself, as a child of the
// one in ctx. Whoever starts it ends it.
func (t *Tracing) StartSpan(ctx context.Context, name string,
	attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.start(ctx, name, trace.SpanKindInternal, attrs)
}

// StartServer is StartSpan for a request of somebody else's.
func (t *Tracing) StartServer(ctx context.Context, name string,
	attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.start(ctx, name, trace.SpanKindServer, attrs)
}

// StartClient is StartSpan for a request to somebody else.
func (t *Tracing) StartClient(ctx context.Context, name string,
	attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.start(ctx, name, trace.SpanKindClient, attrs)
}

func (t *Tracing) start(ctx context.Context, name string, kind trace.SpanKind,
	attrs []attribute.KeyValue) (context.Context, trace.Span) {
	if !t.Enabled() {
		return ctx, noop.Span{}
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
}

// Record makes a span of something that is over: the time a job spent in a
// queue, say. The context it returns is that of the span.
func (t *Tracing) Record(ctx context.Context, name string, from, to time.Time,
	attrs ...attribute.KeyValue) context.Context {
	if !t.Enabled() {
		return ctx
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from),
		trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(to))
	return ctx
}

// RecordRun is Record for a run. why is the reason of its failure, empty where it did not fail.
func (t *Tracing) RecordRun(ctx context.Context, reason string, from, to time.Time,
	attrs ...attribute.KeyValue) context.Context {
	if !t.Enabled() {
		return ctx
	}
	ctx, span := t.tracer.Start(ctx, "run", trace.WithTimestamp(from),
		trace.WithAttributes(attrs...))
	if reason != "" {
		FailSpan(span, reason)
	}
	span.End(trace.WithTimestamp(to))
	return ctx
}

// maxReason is how many bytes of a reason a span gets: workers put what they like into it.
const maxReason = 1 << 10

// FailSpan marks a span as that of something that went wrong.
func FailSpan(span trace.Span, reason string) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

// Shutdown sends what has not been sent, for as long as ctx holds, and ends the
// tracing.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if !t.Enabled() {
		return nil
	}
	giveUp := context.AfterFunc(ctx, t.cancelExport)
	err := t.provider.Shutdown(context.WithoutCancel(ctx))
	if !giveUp() {
		return fmt.Errorf("telemetry: not all traces were sent: %w", ctx.Err())
	}
	t.cancelExport()
	return err
}

// reportingExporter tells its part when the collector cannot be reached; the library would tell a
// global handler.
type reportingExporter struct {
	sdktrace.SpanExporter
	part *outage.Part
	ctx  context.Context // that of the tracing
}

func (s *reportingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(s.ctx, cancel)()
	defer cancel()
	_ = s.part.Do(func() error {
		err := s.SpanExporter.ExportSpans(ctx, spans)
		if err == nil || s.ctx.Err() != nil {
			return nil
		}
		return &job.Error{Kind: job.Unavailable, Op: "telemetry.export", Msg: "traces are dropped",
			Err: err}
	})
	return nil
}
