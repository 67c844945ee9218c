package relay_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestPaths is section 5.11.
func TestPaths(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a/b", "/", "//", "%", "%2F", "%252F", "a?b=c&d", "#x", "a b",
			" ", "+", "a+b", ".", "..", "../..", "./x",
			"jobs", "run-id", "completions", "heartbeats", "ü", "日本語", "😀", "a;b", "a,b=c:d@e!$'()*~", "\"<>\\^`{|}", "\t\n\r",
			"\x7f", "\u2028", "{queue}", "*",
			"null", "e\u0301"} {
			t.Run(fmt.Sprintf("RL-095 %q", name), func(t *testing.T) {
				body := "[" + strings.ReplaceAll(jobBody("QUEUE", "ID"), `"QUEUE","id":"ID"`,
					quote("q"+name)+`,"id":`+quote(name)) + "]"
				w.Do(t, "POST", "/v2/queues/jobs", body).WantStatus(t, 202)
				w.Do(t, "POST", "/v2/queues/jobs",
					strings.ReplaceAll(body, quote("q"+name), quote(name))).WantStatus(t, 202)
				for _, queue := range []string{name, "q" + name} {
					everyByte := func(s string) string {
						var b strings.Builder
						for i := range len(s) {
							fmt.Fprintf(&b, "%%%02x", s[i])
						}
						return b.String()
					}
					w.Do(t, "HEAD", "/v2/queues/"+everyByte(queue)+"/jobs/"+everyByte(name),
						"").WantStatus(t, 200)
					escape := func(s string) string {
						return strings.ReplaceAll(everyDot(url.PathEscape(s)), "+", "%2B")
					}
					path := "/v2/queues/" + escape(queue) + "/jobs/" + escape(name)
					r := w.Do(t, "GET", "/v2/queues/"+escape(queue)+"/jobs", "").WantStatus(t, 200)
					run := r.Body[strings.Index(r.Body, `"run_id":"`)+10:][:36]
					if !strings.Contains(r.Body, `"id":`) ||
						!strings.Contains(w.Do(t, "GET", path, "").WantStatus(t, 200).Body, run) {
						t.Errorf("got %s", r.Body)
					}
					w.Do(t, "PATCH", path+"/run-id/"+run, "1").WantStatus(t, 202)
					w.Do(t, "DELETE", path+"/run-id/"+run, "").WantStatus(t, 200)
					w.Do(t, "HEAD", path, "").WantStatus(t, 404)
				}
			})
		}
	})
}

// everyDot escapes what a client would resolve.
func everyDot(escaped string) string { return strings.ReplaceAll(escaped, ".", "%2E") }

// quote writes a JSON string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < ' ' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// TestProtocol is the rest of section 5.11.
func TestProtocol(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	t.Run("RL-096 run_id_is_not_a_uuid", func(t *testing.T) {
		for _, run := range []string{"x", "12345678-1234-8123-8123-123456789ab",
			"12345678-1234-8123-8123-123456789abg", "%2F", "1234567811234-8123-8123-123456789abc"} {
			for _, method := range []string{"PATCH", "PUT", "DELETE"} {
				w.Do(t, method, jobPath("q", "1")+"/run-id/"+run, "[]").WantStatus(t,
					400).WantErrorText(t, "UUID")
			}
		}
	})
	t.Run("RL-097 nothing_is_cleaned_or_redirected", func(t *testing.T) {
		w.put(t, jobBody("clean", "a/../b"), jobBody("clean", ".."), jobBody("x<>/y", "z"))
		for path, status := range map[string]int{
			"/v2/queues/clean/jobs/a%2F..%2Fb":     200,
			"/v2/queues/clean/jobs/a%2F%2E%2E%2Fb": 200,
			"/v2/queues/clean/jobs/%2E%2E":         200,
			"/v2/queues/clean/jobs/..":             200,
			"/v2/queues/clean/jobs/b":              404,
			"/v2/queues/clean/jobs/b/":             404,
			"/v2/queues/clean/jobs//b":             404,
			"/v2//queues/clean/jobs/..":            404,
			"/v2/queues/clean/jobs/x/../..":        404,
			"/v2/./queues/clean/jobs/%2E%2E":       404,
			"/v2/queues/clean/jobs/%2E%2E/":        404,
			"/v2/queues//jobs/x":                   404,
			"/v2/queues/clean%2Fjobs%2F..":         404,
			// "<" should have been escaped and was not
			"/v2/queues/x<>%2Fy/jobs/z":                               200,
			"/v2/queues/" + strings.Repeat("x", 1025) + "/jobs/1":     404,
			"/v2/queues/clean/jobs/" + strings.Repeat("%C3%BC", 1025): 404,
			"/v2/queues/clean/jobs/%00":                               404,
			"/v2/queues/cl%00ean/jobs/1":                              404,
			"/v2/queues/clean/jobs/%FF":                               404,
			"/v2/queues/clean/jobs/%ED%A0%80":                         404,
		} {
			if got := raw(t, w, "GET", path); got != status {
				t.Errorf("%s: got %d, want %d", path, got, status)
			}
		}
	})
	t.Run("RL-097 broken_escapes", func(t *testing.T) {
		for _, path := range []string{"/v2/queues/%/jobs", "/v2/queues/%2/jobs",
			"/v2/queues/%zz/jobs/1"} {
			if got := raw(t, w, "GET", path); got != 400 {
				t.Errorf("%s: got %d, want 400", path, got)
			}
		}
	})
	t.Run("RL-098 queue_called_jobs", func(t *testing.T) {
		w.put(t, jobBody("jobs", "jobs"), jobBody("jobs", "run-id"))
		w.Do(t, "GET", "/v2/queues/jobs/jobs/jobs", "").WantStatus(t, 200)
		v := w.claim(t, "jobs")
		assertEqual(t, "queue", v.Queue, "jobs")
		w.Do(t, "DELETE", "/v2/queues/jobs/jobs/jobs/run-id/"+*v.RunID, "").WantStatus(t, 200)
		w.wantGone(t, "jobs", "jobs")
		w.Do(t, "HEAD", "/v2/queues/jobs/jobs/run-id", "").WantStatus(t, 200)
		w.Do(t, "POST", "/v2/queues/jobs/jobs", "[]").WantStatus(t, 405)
	})
	t.Run("G-RL-32_queues_called_like_the_routes", func(t *testing.T) {
		for _, queue := range []string{"completions", "heartbeats"} {
			w.put(t, jobBody(queue, queue), jobBody(queue, "2"))
			w.Do(t, "HEAD", "/v2/queues/"+queue+"/jobs/"+queue, "").WantStatus(t, 200)
			v := w.claim(t, queue)
			assertEqual(t, "job", v.Queue+" "+v.ID, queue+" "+queue)
			w.heartbeat(t, v, "1").WantStatus(t, 202)
			w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
			assertEqual(t, "next", w.claim(t, queue).ID, "2")
			w.Do(t, "POST", "/v2/queues/"+queue+"/jobs", "[]").WantStatus(t, 405)
			w.Do(t, "GET", "/v1/queues/"+queue+"/jobs", "").WantStatus(t, 204)
			w.Do(t, "POST", "/v1/queues/"+queue, "[]").WantStatus(t, 404)
		}
	})
	t.Run("RL-099 health", func(t *testing.T) {
		w.Do(t, "GET", "/health", "").WantStatus(t, 200).WantEmpty(t)
	})
	for path, allow := range map[string]string{
		"/v2/queues/jobs":     "POST",
		completions:           "POST",
		heartbeats:            "POST",
		"/v2/queues/q/jobs":   "GET",
		"/v2/queues/q/jobs/1": "DELETE, GET, HEAD",
		jobPath("q", "1") + "/run-id/" +
			"12345678-1234-8123-8123-123456789abc": "DELETE, PATCH, PUT",
		"/v1/queues/jobs":     "POST, PUT",
		"/v1/queues/q/jobs":   "GET",
		"/v1/queues/q/jobs/1": "DELETE, GET, HEAD, PATCH",
	} {
		t.Run("RL-100 wrong_method_"+path, func(t *testing.T) {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE",
				"OPTIONS", "TRACE", "BREW"} {
				if strings.Contains(", "+allow+",", " "+method+",") {
					continue
				}
				r := w.Do(t, method, path, "").WantStatus(t, 405)
				assertEqual(t, "allow", r.Header.Get("Allow"), allow)
				if method != "HEAD" {
					r.WantErrorText(t)
				}
			}
		})
	}
	t.Run("G-X-02_outside_and_inside_of_the_mount", func(t *testing.T) {
		for _, path := range []string{"/", "/v2", "/v2/queues", "/v2/queuesx/jobs",
			"/v3/queues/jobs", "/v2/queues/", "/v2/queues/x", "/v2/queues/q/jobs/1/run-id/",
			"/v2/queues/q/job/1"} {
			w.Do(t, "GET", path, "").WantStatus(t, 404).WantErrorText(t)
		}
	})
}

// raw sends a request line that net/http's client would not, and returns the status.
func raw(t *testing.T, w *world, method, path string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
