package testkit

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector takes traces over OTLP, as HTTP with protobuf. What is no OTLP
// fails the test.
type Collector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*otlp.Span
	services []string
	paths    []string
}

// NewCollector starts a collector that ends with the test.
func NewCollector(tb testing.TB) *Collector {
	c := &Collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		export, err := readExport(req)
		if err != nil || req.Header.Get("Content-Type") != "application/x-protobuf" {
			tb.Errorf("%s %s of %s is not OTLP: %v", req.Method, req.URL.Path, req.Header.Get("Content-Type"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.take(req.Method+" "+req.URL.Path, export)
		answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))
	tb.Cleanup(c.Close)
	return c
}

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

func (c *Collector) take(path string, export *collector.ExportTraceServiceRequest) {
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

// Spans returns what has arrived, in that order.
func (c *Collector) Spans() []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Find returns the first span of a name, nil if there is none.
func (c *Collector) Find(name string) *otlp.Span {
	for _, s := range c.Spans() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Senders returns the paths that were asked for and the attributes of the
// processes that asked.
func (c *Collector) Senders() (paths, services []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.paths), slices.Clone(c.services)
}

// AttributeOf returns an attribute of a span as text, empty if there is none.
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
