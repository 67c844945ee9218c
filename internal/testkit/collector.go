package testkit

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/internal/telemetry"
)

// Collector receives traces over OTLP, as protobuf in HTTP requests. A request that is not OTLP
// fails the test. It takes the place of an operator's collector of OpenTelemetry.
type Collector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*otlp.Span
	services []string
	paths    []string
}

// NewCollector starts a collector that ends with the test. It answers as a collector does that has
// stored everything.
func NewCollector(tb testing.TB) *Collector {
	c := &Collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		export, err := readExport(req)
		if err != nil || req.Header.Get("Content-Type") != "application/x-protobuf" {
			tb.Errorf("%s %s of %s is not OTLP: %v", req.Method, req.URL.Path,
				req.Header.Get("Content-Type"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.add(req.Method+" "+req.URL.Path, export)
		answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))
	tb.Cleanup(c.Close)
	return c
}

// readExport reads a request in the form in which exporters send it, compressed or not.
func readExport(req *http.Request) (*collector.ExportTraceServiceRequest, error) {
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var export collector.ExportTraceServiceRequest
	return &export, proto.Unmarshal(text, &export)
}

// add keeps the spans of a request, its path, and the attributes of the process that sent it.
func (c *Collector) add(path string, export *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths = append(c.paths, path)
	for _, rs := range export.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			c.services = append(c.services, a.Key+"="+a.Value.GetStringValue())
		}
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// Spans returns the spans in the order of their arrival. A span arrives when its exporter sends it,
// which may be long after its end.
func (c *Collector) Spans() []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Find returns the first span with a name, nil if there is none. Where several spans have the name,
// Trace returns all of them.
func (c *Collector) Find(name string) *otlp.Span {
	for _, s := range c.Spans() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Tracing makes a Tracing that sends to the collector; flush sends the spans that it still has. A
// span is sent some time after its end, so a test calls flush before it looks.
func (c *Collector) Tracing(tb testing.TB) (tracing *telemetry.Tracing, flush func()) {
	tb.Helper()
	tracing, err := telemetry.NewTracing(context.Background(), c.URL, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return tracing, func() {
		tb.Helper()
		if err := tracing.Shutdown(context.Background()); err != nil {
			tb.Fatal(err)
		}
	}
}

// Trace returns the spans of the trace of a traceparent, ordered by name. Spans of other traces, of
// tests that share the process, are left out.
func (c *Collector) Trace(traceparent string) []*otlp.Span {
	all := slices.DeleteFunc(c.Spans(), func(s *otlp.Span) bool {
		return hex.EncodeToString(s.TraceId) != traceparent[3:35]
	})
	slices.SortStableFunc(all, func(a, b *otlp.Span) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// NamesOf returns the names of spans; a ! follows those that failed. So a test compares a whole
// trace with one text, "claim run! finish" for example.
func NamesOf(spans []*otlp.Span) string {
	var names []string
	for _, s := range spans {
		name := s.Name
		if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			name += "!"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Senders returns the paths of the requests and the attributes of the processes that sent them. A
// test finds by them which process has sent what, and that it was sent to the right path.
func (c *Collector) Senders() (paths, services []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.paths), slices.Clone(c.services)
}

// AttributeOf returns an attribute of a span as text, empty if there is none. A string is returned
// as it is, any other value in the form of protobuf's text, int_value:200 for example.
func AttributeOf(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			if a.Value.GetStringValue() != "" {
				return a.Value.GetStringValue()
			}
			return a.Value.String()
		}
	}
	return ""
}
