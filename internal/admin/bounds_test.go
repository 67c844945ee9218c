package admin_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// Numbers at and beyond the ends of what databases have, and what is no number.
var (
	farNumbers   = []string{"9223372036854775807", "4294967296", "2147483648"}
	wrongNumbers = []string{"9223372036854775808", "99999999999999999999999999", "0", "-1", "1e3",
		"1.5", "0x1", "-9223372036854775809"}
)

// A number of a path that nothing has, however large, is 404, and what is no number of a parameter
// is 400, on both databases: neither is an error of the server.
func TestNumbersOutOfRange(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.failTask(t, "q", `{"error":"x"}`)
		for _, path := range [][2]string{{"GET", "/jobs/N"}, {"GET", "/jobs/N/why"},
			{"GET", "/jobs/N/timeline"}, {"GET", "/jobs/N/payload"}, {"GET", "/jobs/N/definition"},
			{"GET", "/jobs/N/progress"}, {"GET", "/jobs/N/result"}, {"GET", "/jobs/N/failure"},
			{"POST", "/jobs/N/retry"}, {"POST", "/jobs/N/delete"}, {"GET", "/dead-letters/N"},
			{"POST", "/dead-letters/N/replay"}, {"DELETE", "/dead-letters/N"}} {
			for _, n := range append(farNumbers, wrongNumbers...) {
				w.do(t, w.api.Token(), path[0], "/admin/v1"+strings.Replace(path[1], "N", n, 1), "").
					WantError(t, 404, "NOT_FOUND")
			}
		}
		for query, maxText := range map[string]string{
			"jobs?number=": "9223372036854775807", "jobs?number=1,": "9223372036854775807",
			"jobs?parent=": "9223372036854775807", "jobs?min_attempts=": "2147483647",
			"events?number=": "", "schedules/none?next=": "", "jobs?limit=": "500",
			"dead-letters?limit=": "500", "dead-letters/groups?limit=": "500", "queues?limit=": "500",
			"audit?limit=": "500", "bulk?limit=": "500", "counts?by=state&limit=": "500",
			"webhooks?limit=": "500", "clients?limit=": "500", "schedules?limit=": "500",
			"workers?limit=": "500", "nodes?limit=": "500", "settings?limit=": "500"} {
			name := query[strings.LastIndexAny(query, "?&")+1 : strings.LastIndex(query, "=")]
			for _, n := range wrongNumbers {
				w.do(t, w.api.Token(), "GET", "/admin/v1/"+query+n, "").
					WantError(t, 400, "VALIDATION_ERROR", name)
			}
			if maxText != "" {
				w.do(t, w.api.Token(), "GET", "/admin/v1/"+query+maxText, "").WantStatus(t, 200)
			}
		}
		for _, body := range []string{`{"number":N}`, `{"number":[1,N]}`, `{"parent":N}`,
			`{"min_attempts":N}`} {
			for _, n := range []string{"9223372036854775808", "0", "-1", "1.5", "1e3"} {
				w.post(t, "/admin/v1/bulk", `{"action":"retry","dry_run":true,"filter":`+
					strings.Replace(body, "N", n, 1)+`}`).WantError(t, 400, "VALIDATION_ERROR")
			}
		}
		for list, name := range map[string]string{"jobs?": "jobs", "jobs?order=oldest&": "jobs oldest",
			"dead-letters?": "dead-letters", "dead-letters?error=x&": "dead-letters"} {
			for _, n := range farNumbers {
				w.do(t, w.api.Token(), "GET", "/admin/v1/"+list+"cursor="+
					base64.RawURLEncoding.EncodeToString([]byte(name+":"+n)), "").WantStatus(t, 200)
			}
		}
	})
}

// Two bounds that are the wrong way round are refused, and both are named; the ends of time are
// bounds as any other. It is so for every pair, on both databases.
func TestTimesOutOfRange(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		w.failTask(t, "q", `{"error":"x"}`)
		const early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
		const first, last = "0001-01-01T00:00:01Z", "9999-12-31T23:59:59.999999Z"
		for _, tt := range []struct{ path, lower, upper, low, high string }{
			{"jobs?", "created_from", "created_before", early, late},
			{"jobs?", "settled_from", "settled_before", early, late},
			{"jobs?", "min_age", "max_age", "1h", "1h1s"},
			{"dead-letters?", "from", "to", early, late},
			{"audit?", "from", "to", early, late},
		} {
			get := func(low, high string) testkit.Reply {
				return w.do(t, w.api.Token(), "GET", "/admin/v1/"+tt.path+url.Values{
					tt.lower: {low}, tt.upper: {high}}.Encode(), "")
			}
			get(tt.low, tt.high).WantStatus(t, 200)
			get(tt.high, tt.low).WantError(t, 400, "VALIDATION_ERROR", tt.lower, tt.upper)
			get(tt.low, tt.low).WantStatus(t, 200)
			if tt.low == early {
				get(first, last).WantStatus(t, 200)
				get(last, first).WantError(t, 400, "VALIDATION_ERROR", tt.lower, tt.upper)
				get("0001-01-01T00:00:00Z", last).WantError(t, 400, "VALIDATION_ERROR", tt.lower)
			}
		}
		w.do(t, w.api.Token(), "GET", "/admin/v1/series?metric=depth&from="+late+"&to="+early, "").
			WantError(t, 400, "VALIDATION_ERROR", "from", "to")
		for _, span := range []string{first + "&to=" + last, last + "&to=" + first, last, first} {
			w.do(t, w.api.Token(), "GET", "/admin/v1/series?metric=depth&from="+span, "").
				WantError(t, 400, "VALIDATION_ERROR", "from")
		}
		for body, names := range map[string]string{
			`"retry","filter":{"created_from":"` + late + `","created_before":"` + early + `"}`: "created_",
			`"retry","filter":{"settled_from":"` + late + `","settled_before":"` + early + `"}`: "settled_",
			`"retry","filter":{"min_age":"2h","max_age":"1h"}`:                                  "_age",
			`"replay","filter":{"from":"` + late + `","to":"` + early + `"}`:                    "from",
			`"retry","everything":true,"as_of":"` + last + `"`:                                  "as_of",
			`"retry","everything":true,"as_of":"yesterday"`:                                     "as_of",
			`"retry","everything":true,"as_of":1`:                                               "as_of",
			`"retry","everything":true,"as_of":""`:                                              "as_of",
		} {
			w.jobsWorld.post(t, "/admin/v1/bulk", `{"action":`+body+`}`).
				WantError(t, 400, "VALIDATION_ERROR", names)
		}
		w.post(t, "replay", `{"from":"`+late+`","to":"`+early+`"}`).
			WantError(t, 400, "VALIDATION_ERROR", "from", "to")
		w.run(t)
		w.post(t, "replay", `{"from":"`+first+`","to":"`+last+`"}`).WantStatus(t, 202)
	})
}

// AD-022: an operation that is confirmed with the as_of of its dry run leaves alone what came into
// the filter since: a job that was created then, and one that changed into it.
func TestBulkAsOf(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		const path, filter = "/admin/v1/bulk", `"filter":{"contract":"taskflow","state":"FAILED"}`
		seen := w.failTask(t, "q", `{"error":"x"}`)
		later := w.submitJob(t, "taskflow", `{"name":"later","queue":"q"}`, "")
		w.clock.Advance(time.Second)
		type preview struct {
			Matching, Refused int
			AsOf              string `json:"as_of"`
		}
		dryRun := func(body string) preview {
			t.Helper()
			return testkit.DecodeReply[preview](t, w.post(t, path,
				`{"action":"delete","dry_run":true,`+body+`}`).WantStatus(t, 200))
		}
		p := dryRun(filter)
		if p.Matching != 1 || p.Refused != 0 || p.AsOf == "" {
			t.Fatalf("AD-020 a dry run answered %+v", p)
		}
		w.clock.Advance(time.Second)
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.FailedForGood}) // it is later
		created := w.failTask(t, "q", `{"error":"x"}`)
		w.clock.Advance(time.Second)
		asOf := `"as_of":"` + p.AsOf + `",`
		if again := dryRun(asOf + filter); again.Matching != 2 || again.Refused != 1 ||
			again.AsOf != p.AsOf {
			t.Errorf("AD-022 a dry run of that time answered %+v", again)
		}
		id := w.startBulk(t, path, `{"action":"delete",`+asOf+filter+`}`)
		if b := w.await(t, id, "done"); b.Done != 1 || b.Skipped != 1 || b.Failed != 0 {
			t.Errorf("AD-022 the operation is %+v", b)
		}
		for number, status := range map[int64]int{seen.Number: 404, later.Number: 200,
			created.Number: 200} {
			w.do(t, w.api.Token(), "GET", fmt.Sprintf("/admin/v1/jobs/%d", number), "").
				WantStatus(t, status)
		}
		// Ages count back from that time too.
		const aged = `"filter":{"contract":"taskflow","min_age":"1s"}`
		if then, now := dryRun(asOf+aged), dryRun(aged); then.Matching != 1 || now.Matching != 2 {
			t.Errorf("AD-022 %d jobs were a second old, and %d are", then.Matching, now.Matching)
		}
	})
}
