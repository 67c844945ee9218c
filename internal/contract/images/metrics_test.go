package images_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/testkit"
)

var objectOfPNG = object.Attributes{ContentType: "image/png"}

func http1() io.Reader { return bytes.NewReader([]byte{1}) }

var (
	apiBuckets    = []float64{0.1, 0.3, 0.5, 1, 2, 5, 10}
	callBuckets   = []float64{0.1, 0.3, 0.5, 1, 3, 5, 7, 10}
	runBuckets    = []float64{0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10}
	uploadBuckets = []float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
		1048576}
	waitBuckets = []float64{10, 30, 50, 70, 100, 300, 500, 700, 1000, 1500, 2000, 2500, 3000,
		3500, 4000, 4500, 5000, 5500, 6000, 6500, 7000, 7500, 8000, 8500, 9000, 9500, 10000}
)

// families are the families of the document, literally.
var families = []struct {
	id, role, name, labels string
	kind                   dto.MetricType
	buckets                []float64
}{
	{"IP-062", "api", "http_request_duration_seconds", "method route status_code",
		dto.MetricType_HISTOGRAM, apiBuckets},
	{"IP-063", "api", "http_requests_total", "method route status_code", dto.MetricType_COUNTER,
		nil},
	{"IP-064", "api", "upload_size_bytes", "mime_type", dto.MetricType_HISTOGRAM, uploadBuckets},
	{"IP-065", "api", "db_query_duration_seconds", "operation table", dto.MetricType_HISTOGRAM,
		apiBuckets},
	{"IP-066", "api", "db_query_error_total", "error_code operation table", dto.MetricType_COUNTER,
		nil},
	{"IP-067", "api", "external_duration_seconds", "operation service", dto.MetricType_HISTOGRAM,
		apiBuckets},
	{"IP-068", "api", "external_error_total", "error_code operation service",
		dto.MetricType_COUNTER, nil},
	{"IP-070", "worker", "job_processing_duration_seconds", "job_type status",
		dto.MetricType_HISTOGRAM, runBuckets},
	{"IP-071", "worker", "job_queue_latency_milliseconds", "job_type", dto.MetricType_HISTOGRAM,
		waitBuckets},
	{"IP-072", "worker", "job_processed_total", "job_type status", dto.MetricType_COUNTER, nil},
	{"IP-073", "worker", "image_processing_errors_total", "error_type", dto.MetricType_COUNTER,
		nil},
	{"IP-074", "worker", "s3_operation_duration_seconds", "bucket operation",
		dto.MetricType_HISTOGRAM, callBuckets},
	{"IP-075", "worker", "s3_operation_errors_total", "bucket error_code operation",
		dto.MetricType_COUNTER, nil},
	{"IP-076", "worker", "db_query_duration_seconds", "query_type", dto.MetricType_HISTOGRAM,
		runBuckets},
	{"IP-077", "worker", "db_query_errors_total", "error_type query_type", dto.MetricType_COUNTER,
		nil},
	{"IP-078", "worker", "cloudfront_operation_duration_seconds", "operation",
		dto.MetricType_HISTOGRAM, callBuckets},
	{"IP-079", "worker", "cloudfront_operation_errors_total", "error_code operation",
		dto.MetricType_COUNTER, nil},
	{"IP-080", "worker", "job_active_count", "job_type", dto.MetricType_GAUGE, nil},
	{"IP-081", "worker", "job_queue_depth", "job_type", dto.MetricType_GAUGE, nil},
}

// All families are there before anything has happened, also where no worker runs.
func TestFamilies(t *testing.T) {
	t.Parallel()
	c := config()
	c.NoLocalWorkers = true
	w := inMemory(t, c)
	t.Run("G-IP-09 G-IP-10 G-IP-23 no others, in registries of their own, and all at zero",
		func(t *testing.T) {
			for role, from := range map[string]*prometheus.Registry{"api": w.api,
				"worker": w.worker} {
				all, err := from.Gather()
				if err != nil {
					t.Fatal(err)
				}
				named := map[string]bool{}
				for _, f := range families {
					named[f.name] = named[f.name] || f.role == role
				}
				for _, family := range all {
					if !named[family.GetName()] {
						t.Errorf("%s has %s", role, family.GetName())
					}
					for _, m := range family.Metric {
						if m.GetCounter().GetValue() != 0 || m.GetGauge().GetValue() != 0 ||
							m.GetHistogram().GetSampleCount() != 0 {
							t.Errorf("%s begins with %s", family.GetName(), m)
						}
					}
				}
			}
			for _, jobType := range []string{"process_file", "delete_file"} {
				for _, status := range []string{"completed", "failed_retryable", "failed"} {
					metric(t, w.worker, "job_processed_total", "job_type", jobType, "status",
						status)
					metric(t, w.worker, "job_processing_duration_seconds", "job_type", jobType,
						"status", status)
				}
				for _, name := range []string{"job_queue_latency_milliseconds", "job_active_count",
					"job_queue_depth"} {
					metric(t, w.worker, name, "job_type", jobType)
				}
			}
			for _, mime := range []string{"image/jpeg", "image/png", "image/gif", "image/webp"} {
				metric(t, w.api, "upload_size_bytes", "mime_type", mime)
			}
		})
	for _, f := range families {
		t.Run(f.id+" "+f.name, func(t *testing.T) {
			from := map[string]*prometheus.Registry{"api": w.api, "worker": w.worker}[f.role]
			all, err := from.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var found *dto.MetricFamily
			for _, family := range all {
				if family.GetName() == f.name {
					found = family
				}
			}
			if found == nil {
				t.Fatal("it is not there")
			}
			assertEqual(t, "type", found.GetType(), f.kind)
			var labels []string
			for _, l := range found.Metric[0].Label {
				labels = append(labels, l.GetName())
			}
			assertEqual(t, "labels", strings.Join(labels, " "), f.labels)
			var buckets []float64
			for _, b := range found.Metric[0].GetHistogram().GetBucket() {
				buckets = append(buckets, b.GetUpperBound())
			}
			assertEqual(t, "buckets", encoded(buckets), encoded(f.buckets))
		})
	}
}

func TestMetrics(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		picture := pngOf(t, 40, 40)
		r := w.put(t, picture)
		t.Run("IP-064 an upload is observed by its type", func(t *testing.T) {
			assertEqual(t, "uploads", metric(t, w.api, "upload_size_bytes", "mime_type",
				"image/png"), 1.0)
			assertEqual(t, "bytes", histogramSum(t, w.api, "upload_size_bytes"),
				float64(len(picture)))
		})
		t.Run("IP-069 a route goes by its pattern", func(t *testing.T) {
			for range 3 {
				w.job(t, r.JobID)
			}
			w.Do(t, "GET", "/images/v1/no/such/path", "").WantStatus(t, 404)
			for _, name := range []string{"http_requests_total", "http_request_duration_seconds"} {
				assertEqual(t, name, metric(t, w.api, name, "method", "GET", "route",
					jobsPath+"/{job_id}", "status_code", "200"), 3.0)
			}
			w.Do(t, "PUT", jobsPath, "").WantStatus(t, 405)
			for _, name := range []string{"http_requests_total", "http_request_duration_seconds"} {
				assertEqual(t, name+" without a route",
					metric(t, w.api, name, "method", "GET", "route", "none", "status_code", "404"),
					1.0)
				assertEqual(t, name+" of another method",
					metric(t, w.api, name, "method", "PUT", "route", "none", "status_code", "405"),
					1.0)
			}
		})
		t.Run("IP-081 IP-080 what waits and what is in progress", func(t *testing.T) {
			depth := func() [2]float64 {
				return [2]float64{metric(t, w.worker, "job_queue_depth", "job_type",
					"process_file"), metric(t, w.worker, "job_active_count", "job_type",
					"process_file")}
			}
			assertEqual(t, "queued", depth(), [2]float64{1, 0})
			w.clock.Advance(400 * time.Millisecond)
			j := w.mustClaim(t, r.JobID)
			assertEqual(t, "processing", depth(), [2]float64{0, 1})
			w.clock.Advance(2 * time.Second)
			if err := w.end(j, images.FailureOutcome(j, "away", "storage_error",
				true)); err != nil {
				t.Fatal(err)
			}
			assertEqual(t, "waiting for the next attempt", depth(), [2]float64{1, 0})
			w.clock.Advance(5*time.Second + 20*time.Millisecond)
			w.sweep(t)
			w.clock.Advance(20 * time.Millisecond)
			w.attempt(t, r.JobID)
			assertEqual(t, "over", depth(), [2]float64{0, 0})
		})
		t.Run("IP-083 G-IP-13 one observation of each claim, from when the job could be claimed",
			func(t *testing.T) {
				assertEqual(t, "claims", metric(t, w.worker, "job_queue_latency_milliseconds",
					"job_type", "process_file"), 2.0)
				assertEqual(t, "sum", histogramSum(t, w.worker, "job_queue_latency_milliseconds"),
					440.0)
			})
		t.Run("IP-082 G-IP-11 each attempt counts once, under what it led to", func(t *testing.T) {
			for _, status := range []string{"failed_retryable", "completed"} {
				assertEqual(t, status, metric(t, w.worker, "job_processed_total", "job_type",
					"process_file", "status", status), 1.0)
				assertEqual(t, status, metric(t, w.worker, "job_processing_duration_seconds",
					"job_type", "process_file", "status", status), 1.0)
			}
			assertEqual(t, "sum", math.Round(1000*histogramSum(t, w.worker,
				"job_processing_duration_seconds")), 2000.0)
			assertEqual(t, "IP-073 errors",
				metric(t, w.worker, "image_processing_errors_total", "error_type", "storage_error"),
				1.0)
		})
		t.Run("IP-058 IP-059 IP-060 IP-061 G-IP-22 a line for each attempt", func(t *testing.T) {
			lines := w.log.Lines(t, map[string]any{"msg": "attempt", "job_id": r.JobID})
			if len(lines) != 2 {
				t.Fatalf("%d lines", len(lines))
			}
			first, second := lines[0], lines[1]
			assertEqual(t, "duration", first["duration_ms"].(float64), 2000)
			assertEqual(t, "reason", first["reason"].(string), "storage_error: away")
			assertEqual(t, "state", first["current_state"].(string), "failed_retryable")
			assertEqual(t, "retries", [2]float64{first["retries"].(float64),
				second["retries"].(float64)}, [2]float64{0, 1})
			assertEqual(t, "attempt", [2]float64{first["attempt"].(float64),
				second["attempt"].(float64)}, [2]float64{1, 2})
			assertEqual(t, "state", second["current_state"].(string), "completed")
			assertEqual(t, "reason", second["reason"].(string), "")
		})
		t.Run("IP-074 IP-076 IP-067 calls are timed", func(t *testing.T) {
			assertEqual(t, "get", metric(t, w.worker, "s3_operation_duration_seconds", "operation",
				"get_object", "bucket", bucket), 1.0)
			assertEqual(t, "put", metric(t, w.worker, "s3_operation_duration_seconds", "operation",
				"put_object", "bucket", bucket), 2.0)
			assertEqual(t, "claims", metric(t, w.worker, "db_query_duration_seconds", "query_type",
				"claim"), 2.0)
			assertEqual(t, "upload", metric(t, w.api, "external_duration_seconds", "service", "s3",
				"operation", "put_object"), 1.0)
			assertEqual(t, "insert", metric(t, w.api, "db_query_duration_seconds", "operation",
				"insert", "table", "jobs"), 1.0)
			assertEqual(t, "no errors", metric(t, w.worker, "s3_operation_errors_total")+
				metric(t, w.worker, "db_query_errors_total")+
				metric(t, w.api, "db_query_error_total"), 0.0)
		})
		t.Run("IP-084 a message of a job that is done counts nothing", func(t *testing.T) {
			if w.claim(t, r.JobID) != nil {
				t.Error("claimed")
			}
			assertEqual(t, "attempts", metric(t, w.worker, "job_processed_total"), 2.0)
			assertEqual(t, "claims", metric(t, w.worker, "job_queue_latency_milliseconds"), 2.0)
		})
		t.Run("a worker that is lost is an attempt that failed", func(t *testing.T) {
			other := w.put(t, picture)
			w.mustClaim(t, other.JobID)
			w.clock.Advance(lockTimeout + time.Millisecond)
			w.sweep(t)
			assertEqual(t, "attempts", metric(t, w.worker, "job_processed_total", "status",
				"failed_retryable"), 2.0)
			assertEqual(t, "errors", metric(t, w.worker, "image_processing_errors_total",
				"error_type", "worker_lost"), 1.0)
		})
	})
}

// Errors of the database and of the object storage are counted by their kind.
func TestErrorMetrics(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	u := &failingStore{Store: p.Store}
	p.Store = u
	w := newWorldAt(t, p, config())
	r := w.put(t, pngOf(t, 2, 2))
	j := w.mustClaim(t, r.JobID)
	w.send(t, "image/png", make([]byte, maxUpload+1), "").WantError(t, 413, "UPLOAD_TOO_LARGE")
	assertEqual(t, "IP-068 what the caller does wrong is no error of the storage",
		metric(t, w.api, "external_error_total", "operation", "put_object"), 0.0)
	w.objects.Close()
	w.Do(t, "GET", filesPath+"/"+r.FileID+"/content", "").WantError(t, 503, "SERVICE_UNAVAILABLE")
	assertEqual(t, "IP-068 api", metric(t, w.api, "external_error_total", "operation", "get_object",
		"error_code", "unavailable"), 1.0)
	if _, err := w.images.Attempt(context.Background(), j); err != nil {
		t.Fatal(err)
	}
	assertEqual(t, "reason", text(w.status(t, r.JobID, retryable).LastErrorType), "storage_error")
	assertEqual(t, "IP-075 worker", metric(t, w.worker, "s3_operation_errors_total", "operation",
		"get_object", "error_code", "unavailable"), 1.0)
	u.before.Store(true)
	u.blind.Store(true)
	w.Do(t, "GET", jobsPath, "").WantError(t, 503, "SERVICE_UNAVAILABLE")
	_, acked, err := w.images.ClaimProposed(context.Background(), proposal(r.JobID), "w")
	u.before.Store(false)
	u.blind.Store(false)
	if err == nil || acked {
		t.Errorf("acknowledged %t: %v", acked, err)
	}
	assertEqual(t, "IP-066 api", metric(t, w.api, "db_query_error_total", "operation", "select",
		"error_code", "unavailable"), 1.0)
	assertEqual(t, "IP-077 worker", metric(t, w.worker, "db_query_errors_total", "query_type",
		"claim", "error_type", "unavailable"), 1.0)
}

func histogramSum(t testing.TB, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.Metric {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}
