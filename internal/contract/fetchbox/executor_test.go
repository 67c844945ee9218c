package fetchbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestDownload(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	headers := make(chan http.Header, 1)
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		rw.Header().Set("Content-Type", "image/png; charset=utf-8")
		_, _ = io.WriteString(rw, "picture")
	})
	ctx := context.Background()
	t.Run("FB-082 the default key, size, digest and type", func(t *testing.T) {
		r := wantSuccess(t, w.fetch(ctx, taskOf(s.URL, nil), 0))
		want := result{URI: "s3://millrace/" + defaultKey, Size: 7, SHA256: digest("picture"),
			ContentType: "image/png; charset=utf-8"}
		if r != want || string(w.object(t, r.URI)) != "picture" {
			t.Errorf("got %+v, want %+v", r, want)
		}
		_, info, err := w.objects.Open(ctx, "", defaultKey)
		if err != nil || info.ContentType != "image/png; charset=utf-8" || info.Size != 7 {
			t.Errorf("the object is %+v, %v", info, err)
		}
		<-headers
	})
	t.Run("FB-023 the headers of the task win over its type's", func(t *testing.T) {
		task := taskOf(s.URL, func(task *handler.Task) {
			task.JobType = gallery
			task.Headers = map[string]string{"x-from": "task",
				"Referer": "https://example.com/page.html", "Authorization": "Bearer s3cret"}
		})
		wantSuccess(t, w.fetch(ctx, task, 0))
		h := <-headers
		for name, want := range map[string]string{"X-From": "task", "User-Agent": "FetchBox/1.0",
			"Referer": "https://example.com/page.html", "Authorization": "Bearer s3cret"} {
			if got := h.Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
	t.Run("FB-071 FB-080 a direct producer's task gets bucket and prefix of its type",
		func(t *testing.T) {
			r := wantSuccess(t, w.fetch(ctx, taskOf(s.URL, func(task *handler.Task) {
				task.JobType = gallery
			}), 0))
			assertEqual(t, "uri", r.URI,
				"s3://pictures/gallery/019a0000-0000-7000-8000-000000000001/r")
			<-headers
		})
	t.Run("FB-079 FB-021 a place and metadata of the task's own, tags kept", func(t *testing.T) {
		r := wantSuccess(t, w.fetch(ctx, taskOf(s.URL, func(task *handler.Task) {
			task.Storage = &handler.Storage{Bucket: "elsewhere", Key: "my/key",
				Metadata: map[string]string{"Page": "7"}}
			task.Tags = map[string]string{"page": "9", "kind": "cover", "bad name": "x", "ü": "x"}
		}), 0))
		assertEqual(t, "uri", r.URI, "s3://elsewhere/my/key")
		_, info, err := w.objects.Open(ctx, "elsewhere", "my/key")
		if err != nil || fmt.Sprint(info.Metadata) != "map[kind:cover page:7]" {
			t.Errorf("got %v, %v", info.Metadata, err)
		}
		<-headers
	})
	t.Run("FB-086 the same task again replaces the object", func(t *testing.T) {
		before := w.files(t)
		wantSuccess(t, w.fetch(ctx, taskOf(s.URL, nil), 0))
		<-headers
		if after := w.files(t); !slices.Equal(before, after) {
			t.Errorf("there were %v, now %v", before, after)
		}
	})
	if n := w.counter(t, "worker_download_bytes_total"); n != 5*7 {
		t.Errorf("%v bytes are counted", n)
	}
	assertEqual(t, "downloads measured", w.counter(t, "worker_download_seconds"), 5)
	assertEqual(t, "downloads under way", w.counter(t, "worker_tasks_inflight"), 0)
}

// FB-083: which failures are tried again.
func TestTaxonomy(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(code)
			_, _ = io.WriteString(rw, "no")
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		code   string
		again  bool
	}{
		"400": {status(400), "HTTP_400", false},
		"401": {status(401), "HTTP_401", false},
		"403": {status(403), "HTTP_403", false},
		"404": {status(404), "HTTP_404", false},
		"410": {status(410), "HTTP_410", false},
		"451": {status(451), "HTTP_451", false},
		"304": {status(304), "HTTP_304", false},
		"408": {status(408), "HTTP_408", true},
		"429": {status(429), "HTTP_429", true},
		"500": {status(500), "HTTP_500", true},
		"502": {status(502), "HTTP_502", true},
		"503": {status(503), "HTTP_503", true},
		"599": {status(599), "HTTP_599", true},
		"a connection that is cut": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "DOWNLOAD_CONNECTION", true},
		"an answer that ends early": {truncatedAnswer("10", "half"), "DOWNLOAD_TRUNCATED", true},
		"chunks that end early":     {abortAnswer, "DOWNLOAD_TRUNCATED", true},
		"too many redirects": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "/", http.StatusFound)
		}, "DOWNLOAD_TOO_MANY_REDIRECTS", false},
		"a redirect to another world": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "ftp://example.com/", http.StatusFound)
		}, "DOWNLOAD_INVALID_URL", false},
		"a redirect with credentials": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://u:s3cret@example.com/", http.StatusFound)
		}, "DOWNLOAD_INVALID_URL", false},
		"a redirect to a file": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "file:///etc/passwd", http.StatusFound)
		}, "DOWNLOAD_INVALID_URL", false},
		"a redirect to where nobody is called": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://169.254.169.254/", http.StatusFound)
		},
			"DOWNLOAD_ADDRESS_REFUSED", false},
	} {
		t.Run("FB-083 "+name, func(t *testing.T) {
			t.Parallel()
			s := origin(t, tt.answer)
			wantFailure(t, w.fetch(context.Background(), taskOf(s.URL, nil), 0), tt.code, tt.again)
		})
	}
	t.Cleanup(func() {
		w.nothingStored(t)
		assertEqual(t, "counted", w.counter(t, "worker_download_failures_total", "code",
			"HTTP_403"), 1)
	})
}

// truncatedAnswer promises more than comes.
func truncatedAnswer(length, text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", length)
		_, _ = io.WriteString(rw, text)
	}
}

// abortAnswer in the middle of an answer without a length.
func abortAnswer(rw http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(rw, strings.Repeat("x", 100_000))
	rw.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func TestFailuresWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	w := newFetchWorld(t, assertNear())
	t.Run("FB-083 nobody is there", func(t *testing.T) {
		wantFailure(t, w.fetch(ctx, taskOf(closed.URL, nil), 0), "DOWNLOAD_CONNECTION", true)
	})
	t.Run("FB-083 a certificate nobody trusts", func(t *testing.T) {
		wantFailure(t, w.fetch(ctx, taskOf(secure.URL, nil), 0), "DOWNLOAD_TLS", true)
	})
	t.Run("FB-083 a name nobody knows", func(t *testing.T) {
		wantFailure(t, w.fetch(ctx, taskOf("http://nobody.invalid./", nil), 0),
			"DOWNLOAD_UNKNOWN_HOST", true)
	})
	t.Run("G-FB-29 FB-083 no answer, and half of one, in time", func(t *testing.T) {
		release := make(chan struct{})
		slow := origin(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/half" {
				_, _ = io.WriteString(rw, "half")
				rw.(http.Flusher).Flush()
			}
			<-release
		})
		defer close(release)
		c := assertNear()
		c.DownloadTimeout = 150 * time.Millisecond
		w := newFetchWorld(t, c)
		wantFailure(t, w.fetch(ctx, taskOf(slow.URL, nil), 0), "DOWNLOAD_TIMEOUT", true)
		wantFailure(t, w.fetch(ctx, taskOf(slow.URL+"/half", nil), 0), "DOWNLOAD_TIMEOUT", true)
		w.nothingStored(t)
	})
	t.Run("a task that is none", func(t *testing.T) {
		wantFailure(t, w.fetchbox.Fetch(ctx, &job.Job{Queue: "default", Payload: []byte("[]")}),
			"SYSTEM_MALFORMED_TASK", false)
	})
	w.nothingStored(t)
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	var other *httptest.Server
	seen := make(chan http.Header, 20)
	home := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		left, err := strconv.Atoi(r.URL.Path[1:])
		switch {
		case err != nil:
			http.Redirect(rw, r, other.URL, http.StatusFound)
		case left > 0:
			http.Redirect(rw, r, "/"+strconv.Itoa(left-1), http.StatusFound)
		}
	})
	other = origin(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	t.Run("G-FB-38 ten are followed", func(t *testing.T) {
		wantSuccess(t, w.fetch(context.Background(), taskOf(home.URL+"/10", nil), 0))
		wantFailure(t, w.fetch(context.Background(), taskOf(home.URL+"/11", nil), 0),
			"DOWNLOAD_TOO_MANY_REDIRECTS", false)
	})
	t.Run("G-FB-29 credentials stay", func(t *testing.T) {
		wantSuccess(t, w.fetch(context.Background(),
			taskOf(home.URL+"/away", func(task *handler.Task) {
				task.Headers = map[string]string{"Authorization": "s3cret", "Cookie": "s3cret",
					"X-Key": "s3cret", "Accept": "image/*"}
			}), 0))
		if h := <-seen; strings.Contains(fmt.Sprint(h), "s3cret") || h.Get("Accept") != "image/*" {
			t.Errorf("the other host got %v", h)
		}
	})
}

// G-FB-29: the size limit, announced beforehand or exceeded on the way.
func TestSizeLimit(t *testing.T) {
	t.Parallel()
	c := assertNear()
	c.MaxDownload = 100_000
	w := newFetchWorld(t, c)
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if r.URL.Path == "/announced" {
			rw.Header().Set("Content-Length", strconv.Itoa(n))
		}
		for range n / 1000 {
			_, _ = rw.Write(make([]byte, 1000))
			rw.(http.Flusher).Flush()
		}
		_, _ = rw.Write(make([]byte, n%1000))
	})
	for _, path := range []string{"/announced", "/unannounced"} {
		t.Run("G-FB-29 "+path, func(t *testing.T) {
			wantFailure(t, w.fetch(context.Background(), taskOf(s.URL+path+"?n=100001", nil), 0),
				"DOWNLOAD_TOO_LARGE", false)
			w.nothingStored(t)
		})
	}
	for _, path := range []string{"/announced", "/unannounced"} {
		if r := wantSuccess(t, w.fetch(context.Background(), taskOf(s.URL+path+"?n=100000", nil),
			0)); r.Size != 100_000 {
			t.Errorf("got %+v", r)
		}
	}
	if r := wantSuccess(t, w.fetch(context.Background(), taskOf(s.URL+"/announced?n=0", nil),
		0)); r.Size != 0 || r.SHA256 != digest("") {
		t.Errorf("got %+v", r)
	}
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	s := origin(t, func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "picture")
	})
	fetch := func(hint string) engine.Outcome {
		return w.fetch(context.Background(), taskOf(s.URL, func(task *handler.Task) {
			task.Tags = map[string]string{"checksum_hint": hint}
		}), 0)
	}
	t.Run("a wrong one leaves no object", func(t *testing.T) {
		wantFailure(t, fetch("sha256:"+digest("other")), "DOWNLOAD_CHECKSUM_MISMATCH", true)
		w.nothingStored(t)
	})
	for _, hint := range []string{"sha256:" + digest("picture"),
		"SHA256:" + strings.ToUpper(digest("picture"))} {
		if r := wantSuccess(t, fetch(hint)); !r.Verified {
			t.Errorf("%s was not looked at", hint)
		}
	}
	for _, hint := range []string{"", "sha256:deadbeef", "sha256:",
		"md5:d41d8cd98f00b204e9800998ecf8427e", "nonsense", "sha256:" + strings.Repeat("z", 64)} {
		if r := wantSuccess(t, fetch(hint)); r.Verified {
			t.Errorf("%q counts as verified", hint)
		}
	}
}

// FB-081: nothing is asked for that should not be, whoever published the task.
func TestHostileTasks(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	s := origin(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	w := newFetchWorld(t, assertNear())
	for _, url := range []string{"", "ftp://127.0.0.1/x", "file:///etc/passwd",
		"gopher://127.0.0.1", "javascript:alert(1)", "//127.0.0.1/x", "http://", "http:///x",
		"http://u:s3cret@127.0.0.1/", "http://127.0.0.1:0/", "http://127.0.0.1:99999/",
		"http://a b/", "http://a/\r\nX: y", "\x00", "http://[fe80::1%25eth0]/",
		s.URL + "/" + strings.Repeat("x", egress.MaxURL)} {
		t.Run(fmt.Sprintf("FB-081 %.40q", url), func(t *testing.T) {
			wantFailure(t, w.fetch(context.Background(), taskOf(url, nil), 0),
				"DOWNLOAD_INVALID_URL", false)
		})
	}
	for name, value := range map[string]string{"Host": "other", "Connection": "close",
		"Proxy-Authorization": "s3cret", "Transfer-Encoding": "chunked", "Content-Length": "7",
		"X-A\r\nHost": "x", "X-A": "s3cret\r\nHost: b", "": "x", "Sec-Fetch-Mode": "x",
		"Upgrade": "h2c", "TE": "x", "Expect": "100-continue"} {
		t.Run(fmt.Sprintf("FB-020 %q", name), func(t *testing.T) {
			task := taskOf(s.URL, func(task *handler.Task) {
				task.Headers = map[string]string{name: value}
			})
			wantFailure(t, w.fetch(context.Background(), task, 0), "DOWNLOAD_INVALID_HEADER", false)
		})
	}
	for _, place := range []handler.Storage{{Key: "../up"}, {Key: "/etc/passwd"},
		{Key: "a/../../b"}, {Key: "a\x00b"}, {Key: "a//b"}, {Key: "x.attrs"}, {Key: `a\b`},
		{Key: strings.Repeat("x", 2000)}, {Bucket: ".."}, {Bucket: "../up"}, {Bucket: "a/b"},
		{Bucket: "UPPER"}} {
		t.Run(fmt.Sprintf("FB-085 %.40q in %q", place.Key, place.Bucket), func(t *testing.T) {
			before := hits.Load()
			task := taskOf(s.URL, func(task *handler.Task) { task.Storage = &place })
			wantFailure(t, w.fetch(context.Background(), task, 0), "UPLOAD_INVALID_KEY", false)
			if hits.Load() != before {
				t.Error("the origin was asked for what could not be stored")
			}
		})
	}
	if names, _ := os.ReadDir(filepath.Dir(w.dir)); len(names) > 3 {
		t.Errorf("beside the objects there are %v", names)
	}
	w.nothingStored(t)
	for i, id := range []string{"../../up", "/abs", "..", ".", "a/b", "nul\x00", "x.attrs",
		strings.Repeat("ü", 128), "%2e%2e", "a\\b", "a\nb"} {
		t.Run(fmt.Sprintf("FB-085 G-FB-33 id %.20q", id), func(t *testing.T) {
			r := wantSuccess(t, w.fetch(context.Background(),
				taskOf(s.URL, func(task *handler.Task) {
					task.ResourceID = id
				}), 0))
			rest, below := strings.CutPrefix(r.URI,
				"s3://millrace/resources/default/019a0000-0000-7000-8000-000000000001/")
			if !below || strings.ContainsAny(rest, "/\\\x00\n") || len(w.files(t)) != i+1 {
				t.Errorf("it is at %s, one of %v", r.URI, w.files(t))
			}
		})
	}
}

// G-FB-30: the guard checks every hop.
func TestGuard(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	inner := origin(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	c := config() // nothing of this machine is allowed
	w := newFetchWorld(t, c)
	port := inner.URL[strings.LastIndex(inner.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::1]",
		"[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1", "192.168.0.1", "100.64.0.1"} {
		t.Run("G-FB-30 "+host, func(t *testing.T) {
			wantFailure(t, w.fetch(context.Background(), taskOf("http://"+host+port, nil), 0),
				"DOWNLOAD_ADDRESS_REFUSED", false)
		})
	}
	c.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	w = newFetchWorld(t, c)
	outer := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://127.0.0.2"+port, http.StatusFound)
	})
	wantFailure(t, w.fetch(context.Background(), taskOf(outer.URL, nil), 0),
		"DOWNLOAD_ADDRESS_REFUSED", false)
	if hits.Load() != 0 {
		t.Errorf("%d requests arrived", hits.Load())
	}
}

func TestStorageFails(t *testing.T) {
	t.Parallel()
	s := origin(t, func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, strings.Repeat("x", 1<<20))
	})
	w := newFetchWorld(t, assertNear())
	place := func(key string) *handler.Task {
		return taskOf(s.URL, func(task *handler.Task) { task.Storage = &handler.Storage{Key: key} })
	}
	wantSuccess(t, w.fetch(context.Background(), place("a"), 0))
	wantFailure(t, w.fetch(context.Background(), place("a/below"), 0), "UPLOAD_INVALID_KEY", false)
	// a bucket that takes nothing
	if err := os.Symlink(t.TempDir(), filepath.Join(w.dir, "other")); err != nil {
		t.Fatal(err)
	}
	t.Run("FB-083 the storage answers and takes nothing", func(t *testing.T) {
		o := w.fetch(context.Background(), taskOf(s.URL, func(task *handler.Task) {
			task.Storage = &handler.Storage{Bucket: "other", Key: "k"}
		}), 0)
		if message := wantFailure(t, o, "UPLOAD_FAILED", true); strings.Contains(message, w.dir) {
			t.Errorf("it names the directory: %s", message)
		}
	})
	assertEqual(t, "counted", w.counter(t, "worker_storage_failures_total", "code",
		"UPLOAD_FAILED"), 1)
}

// TestStorageOutage: an attempt that meets an outage of the storage is released and not counted,
// and until the storage answers no origin is asked for what could not be stored.
func TestStorageOutage(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	s := origin(t, func(rw http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = io.WriteString(rw, "x")
	})
	c := assertNear()
	c.MaxAttempts = 1
	w := newFetchWorld(t, c)
	r := w.submitTo(t, "default", resourcesOf(s.URL, 1))
	temporary := filepath.Join(w.dir, ".temp")
	if err := os.RemoveAll(temporary); err != nil { // no new file can be made
		t.Fatal(err)
	}
	t.Run("FB-083 the try that meets it is not counted", func(t *testing.T) {
		o := w.fetch(context.Background(), taskOf(s.URL, nil), 0)
		if o.On != job.Released {
			t.Errorf("it ended as %q", o.On)
		}
		w.awaitEnd(t, r.JobID, o)
		v := w.status(t, r.JobID, "in_progress")
		assertEqual(t, "FB-057 last error", v.LastError.Code, "UPLOAD_FAILED")
		assertEqual(t, "failed", v.Failed, 0)
	})
	t.Run("FB-083 others wait for it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if o := w.fetch(ctx, taskOf(s.URL, nil), 0); o.On != "" {
			t.Errorf("it ended as %q", o.On)
		}
		assertEqual(t, "requests", hits.Load(), 1)
	})
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	wantSuccess(t, w.fetch(context.Background(), taskOf(s.URL, nil), 0))
	assertEqual(t, "lines of downloads about a storage that names itself",
		len(w.log.Lines(t, map[string]any{"level": "WARN"})), 0)
	done := w.withRecordingHandler(nil)
	w.live(t)
	assertEqual(t, "completed with its only try", done.wait(t).Completed, 1)
}

// A run that is lost, or given back because the node stops, leaves nothing and says nothing.
func TestCanceledInMidDownload(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = rw.Write(make([]byte, 200_000))
		rw.(http.Flusher).Flush()
		cancel(errors.New("lost"))
		<-r.Context().Done()
		close(ended)
	})
	if o := w.fetch(ctx, taskOf(s.URL, nil), 0); o.On != "" || o.Failure != nil {
		t.Errorf("got %+v", o)
	}
	<-ended
	w.nothingStored(t)
}

func TestMetadataFits(t *testing.T) {
	t.Parallel()
	task := taskOf("", func(task *handler.Task) {
		task.Storage = &handler.Storage{Metadata: map[string]string{"mine": "stays"}}
		task.Tags = map[string]string{"a": strings.Repeat("x", 1000),
			"b": strings.Repeat("ü", 1000), "c": "fits", "Mine": "not"}
	})
	got := fetchbox.MetadataOf(task, http.Header{"Content-Encoding": {"gzip"}})
	if len(got) != 4 || got["mine"] != "stays" || got["c"] != "fits" || len(got["a"]) != 1000 ||
		got["content_encoding"] != "gzip" {
		t.Errorf("got %d: %.200v", len(got), got)
	}
}

// TestDownloadTrace: a download is a span of the trace its job came from, whose place goes along
// with the request, unless the task has one of its own.
func TestDownloadTrace(t *testing.T) {
	t.Parallel()
	const (
		caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		own    = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	)
	headers := make(chan http.Header, 1)
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		if r.URL.Path == "/none" {
			rw.WriteHeader(http.StatusNotFound)
		}
	})
	collector := testkit.NewCollector(t)
	traced := assertNear()
	var flush func()
	traced.Tracing, flush = collector.Tracing(t)
	fetch := func(w *fetchWorld, path, trace string, change func(*handler.Task)) http.Header {
		w.fetchbox.Fetch(context.Background(),
			&job.Job{Queue: "default", Trace: trace, MaxAttempts: tries,
				Payload: fetchbox.EncodeTask(taskOf(s.URL+path, change))})
		return <-headers
	}
	with, without := newFetchWorld(t, traced), newFetchWorld(t, assertNear())
	sent := map[string]string{
		"download":  fetch(with, "/", caller+" vendor=a", nil).Get("Traceparent"),
		"download!": fetch(with, "/none", caller, nil).Get("Traceparent"),
	}
	h := fetch(with, "/", caller+" vendor=a", func(task *handler.Task) {
		task.Headers = map[string]string{"traceparent": own}
	})
	assertEqual(t, "the task's own place", h.Get("Traceparent")+h.Get("Tracestate"), own)
	h = fetch(without, "/", caller+" vendor=a", nil)
	assertEqual(t, "without a collector", h.Get("Traceparent")+" "+h.Get("Tracestate"),
		caller+" vendor=a")
	h = fetch(without, "/", "", nil)
	assertEqual(t, "without a trace", h.Get("Traceparent")+h.Get("Tracestate"), "")
	flush()
	spans := collector.Trace(caller)
	assertEqual(t, "spans", testkit.NamesOf(spans), "download download! download")
	for name, parent := range sent {
		found := slices.ContainsFunc(spans, func(s *otlp.Span) bool {
			return parent == caller[:36]+hex.EncodeToString(s.SpanId)+"-01" &&
				testkit.NamesOf([]*otlp.Span{s}) == name
		})
		if !found {
			t.Errorf("%s was sent with %q, which is not its span", name, parent)
		}
	}
}
