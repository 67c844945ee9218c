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

// The bounds of spans on their way to the collector. Spans that end while the queue is full are
// dropped: no request or job waits for a collector.
const (
	maxQueuedSpans  = 8192
	maxSpanBatch    = 512
	spanBatchDelay  = 2 * time.Second
	spanSendTimeout = 5 * time.Second
)

// Tracing makes spans and sends them to a collector. A nil Tracing, and one without a collector,
// makes none and costs next to nothing; the trace of a caller is propagated nevertheless.
type Tracing struct {
	tracer       trace.Tracer
	provider     *sdktrace.TracerProvider
	cancelExport context.CancelFunc // aborts an export that is under way
}

// NewTracing makes a Tracing that sends to the collector at endpoint, a URL of OTLP over HTTP such
// as http://127.0.0.1:4318. An empty endpoint makes no spans. monitor records whether the collector
// answers, and may be nil. attrs describe this process. A span without a parent is always
// recorded, one with a parent exactly when the parent is.
func NewTracing(ctx context.Context, endpoint string, monitor *outage.Monitor,
	attrs ...attribute.KeyValue) (*Tracing, error) {
	if endpoint == "" {
		return &Tracing{}, nil
	}
	retry := otlptracehttp.RetryConfig{
		Enabled:         true,
		InitialInterval: time.Second,
		MaxInterval:     spanSendTimeout,
		MaxElapsedTime:  4 * spanSendTimeout,
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(tracesURL(endpoint)),
		otlptracehttp.WithTimeout(spanSendTimeout),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(retry))
	if err != nil {
		return nil, fmt.Errorf("telemetry: the collector of traces: %w", err)
	}
	exportCtx, cancelExport := context.WithCancel(context.Background())
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(attrs...)),
		sdktrace.WithBatcher(
			&reportingExporter{SpanExporter: exporter, monitor: monitor, ctx: exportCtx},
			sdktrace.WithMaxQueueSize(maxQueuedSpans),
			sdktrace.WithMaxExportBatchSize(maxSpanBatch),
			sdktrace.WithBatchTimeout(spanBatchDelay),
			sdktrace.WithExportTimeout(5*spanSendTimeout)))
	return &Tracing{tracer: provider.Tracer("github.com/millrace/millrace"), provider: provider,
		cancelExport: cancelExport}, nil
}

// tracesURL returns the URL to send traces to: the endpoint itself when it has a path.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Path != "" && u.Path != "/") {
		return endpoint
	}
	u.Path = "/v1/traces"
	return u.String()
}

// Enabled reports whether there is a collector, so that spans are made.
func (t *Tracing) Enabled() bool { return t != nil && t.tracer != nil }

// StartSpan begins a span of work inside this process, as a child of the one in ctx. The caller
// ends it.
func (t *Tracing) StartSpan(ctx context.Context, name string,
	attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.start(ctx, name, trace.SpanKindInternal, attrs)
}

// StartServer is StartSpan for a request that this process answers.
func (t *Tracing) StartServer(ctx context.Context, name string,
	attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.start(ctx, name, trace.SpanKindServer, attrs)
}

// StartClient is StartSpan for a request that this process sends.
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

// Record makes a span of something that has already ended, such as the time a job spent in a
// queue. It returns the context of the span.
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

// RecordRun is Record for an attempt. reason is why it failed, "" for success.
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

// maxReason bounds a reason in a span, in bytes: workers may send reasons of any length.
const maxReason = 1 << 10

// FailSpan marks a span as failed.
func FailSpan(span trace.Span, reason string) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

// Shutdown sends the remaining spans, until ctx ends, and ends the tracing.
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

// reportingExporter reports an unreachable collector to its monitor. The library would report it to
// a global handler.
type reportingExporter struct {
	sdktrace.SpanExporter
	monitor *outage.Monitor
	ctx     context.Context // of the tracing; its end aborts exports
}

// ExportSpans implements sdktrace.SpanExporter. It never returns an error: the outage is logged
// once by the monitor, and spans that could not be sent are dropped.
func (s *reportingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(s.ctx, cancel)()
	defer cancel()
	_ = s.monitor.Do(func() error {
		err := s.SpanExporter.ExportSpans(ctx, spans)
		aborted := s.ctx.Err() != nil // by the stop of this node: no outage of the collector
		if err != nil && !aborted {
			return &job.Error{Kind: job.Unavailable, Op: "telemetry.export",
				Msg: "traces are dropped", Err: err}
		}
		return nil
	})
	return nil
}
