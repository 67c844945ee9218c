package admin_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// jobsPage is a page of jobs as it is answered.
type jobsPage struct {
	Items      []item
	NextCursor *string    `json:"next_cursor"`
	SearchedTo *time.Time `json:"searched_to"`
}

// named are jobs of a test by a letter each, in the order of their submission.
type named struct {
	*jobsWorld
	names map[int64]string
	jobs  map[string]jobState
}

// add remembers a job by the next letter. A minute passes between two jobs.
func (n *named) add(j jobState) jobState {
	name := string(rune('a' + len(n.names)))
	n.names[j.Number], n.jobs[name] = name, j
	n.clock.Advance(time.Minute)
	return j
}

// list returns the letters of all jobs that a query selects, in pages of a size.
func (n *named) list(t *testing.T, query url.Values, size int) (names string) {
	t.Helper()
	query.Set("limit", fmt.Sprint(size))
	for {
		page := get[jobsPage](t, n.world, "/admin/v1/jobs?"+query.Encode())
		if len(page.Items) > size || page.SearchedTo != nil {
			t.Errorf("AD-010 %v: a page has %d items, searched to %v", query, len(page.Items),
				page.SearchedTo)
		}
		for _, i := range page.Items {
			wantItem(t, "an item of the list", i, nil)
			names += n.names[int64(i["number"].(float64))]
		}
		if page.NextCursor == nil {
			return names
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// fillJobs makes jobs of three contracts in all phases. They are a minute apart.
func fillJobs(t *testing.T, w *jobsWorld) (n *named, start time.Time) {
	t.Helper()
	n, start = &named{w, map[int64]string{}, map[string]jobState{}}, w.clock.Now()
	n.add(w.failTask(t, "mail", `{"type":"t","error":"Connection REFUSED, 100%_done"}`)) // a: dead
	done := n.add(w.submitJob(t, "taskflow",
		`{"name":"b","queue":"mail","payload":{"to":"Übermut"}}`, "")) // b: completed
	w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Succeeded,
		Result: []byte(`{"sent":"Result_1"}`)})
	n.add(w.submitJob(t, "taskflow", `{"name":"c","queue":"slow"}`, "")) // c: running by v
	if claimed, err := w.engine.Claim(t.Context(), engine.ClaimRequest{JobType: "taskflow",
		Max: 1, Worker: "v"}); err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d: %v", len(claimed), err)
	}
	d := n.add(w.submitJob(t, "taskflow", `{"name":"d","queue":"mail"}`, "")) // d: ready
	n.add(w.submitJob(t, "taskflow", fmt.Sprintf(
		`{"name":"e","queue":"mail","dependencies":[%q,%q]}`, d.ID, done.ID), "")) // e: waiting
	for _, queue := range []string{"mail", "other"} { // f, g: ready, with the same id
		n.add(w.submitJob(t, "relay", fmt.Sprintf(`{"queue":%q,"id":"one","timeout":60,
			"max_retries":0,"payload":{"text":"100%%"}}`, queue), ""))
	}
	h := n.add(w.failRun(t)) // h: ready once more, retried below
	n.add(w.failRun(t))      // i: dead
	w.acted(t, h.Number, "retry")
	child, err := w.engine.Submit(t.Context(), engine.Unique, []engine.Submission{{
		Job:    job.Job{ID: job.ID{JobType: "taskflow", Key: "child"}, Queue: "kids"},
		Parent: job.ID{JobType: "taskflow", Key: n.jobs["e"].ID}}})
	if err != nil {
		t.Fatal(err)
	}
	n.add(jobState{Number: child.Jobs[0].Seq, ID: "child"}) // j: ready
	return n, start
}

// AD-010, AD-011, G-AD-05, G-AD-06: each filter selects what it says, alone and with others, on
// both databases; pages of any size follow each other in either order.
func TestListJobs(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		n, start := fillJobs(t, w)
		at := func(minutes int, more time.Duration) string {
			return start.Add(time.Duration(minutes)*time.Minute + more).Format(time.RFC3339Nano)
		}
		parent := fmt.Sprint(n.jobs["e"].Number)
		numbers := func(names string) string {
			var all []string
			for _, name := range strings.Split(names, "") {
				all = append(all, fmt.Sprint(n.jobs[name].Number))
			}
			return "number=" + strings.Join(all, ",")
		}
		for _, tt := range []struct{ query, want string }{
			{"", "abcdefghij"},
			{"contract=taskflow", "abcdej"}, {"contract=relay", "fg"}, {"contract=webhook", ""},
			{"contract=forgerun&phase=dead", "i"},
			{"queue=mail", "abdef"}, {"queue=mail&contract=relay", "f"}, {"queue=Mail", ""},
			{"queue=m%25il", ""}, {"queue=m_il", ""},
			{"state=READY", "dj"}, {"state=READY,queued,QUEUED", "dfghj"},
			{"state=READY&queue=mail", "d"}, {"state=FAILED&contract=forgerun", "i"},
			{"phase=waiting", "e"}, {"phase=ready&contract=relay", "fg"}, {"phase=leased", "c"},
			{"phase=done", "b"}, {"phase=dead", "ai"}, {"phase=dead,done", "abi"},
			{"phase=dead,leased&contract=taskflow", "ac"}, {"phase=dead&queue=mail", "a"},
			{"phase=done&state=FAILED", ""}, {"phase=waiting&state=READY", ""},
			{"owner=" + w.client, "hi"}, {"owner=" + w.client + "&phase=ready", "h"},
			{"owner=" + w.client + "&contract=forgerun&state=FAILED", "i"}, {"owner=%25", ""},
			{"kind=SUCCESS_FAST", "hi"}, {"kind=SUCCESS_FAST&state=QUEUED", "h"},
			{"kind=success_fast", ""},
			{"id=" + n.jobs["b"].ID, "b"}, {"id=one", "fg"}, {"id=one&queue=other", "g"},
			{"id=one&contract=taskflow", ""}, {"id=on%25", ""},
			{"id=" + n.jobs["b"].ID + "&phase=leased", ""},
			{numbers("fbh"), "bfh"}, {numbers("bcdf") + "&queue=mail", "bdf"},
			{numbers("aaj"), "aj"}, {numbers("ab") + "&phase=dead", "a"}, {"number=999999", ""},
			{numbers("f") + ",999999&contract=relay", "f"},
			{numbers("fb") + "&id=one&text=100%25", "f"},
			{"parent=" + parent, "j"}, {"parent=" + parent + "&phase=ready", "j"},
			{"parent=" + parent + "&phase=done", ""}, {"parent=999999", ""},
			{"worker=v", "c"}, {"worker=w", "abhi"}, {"worker=w&phase=dead&queue=mail", "a"},
			{"worker=_", ""},
			{"created_from=" + at(8, 0), "ij"}, {"created_from=" + at(8, 1000), "j"},
			{"created_before=" + at(2, 0), "ab"}, {"created_before=" + at(2, 1000), "abc"},
			{"created_from=" + at(1, 0) + "&created_before=" + at(4, 0), "bcd"},
			{"created_from=" + at(1, 0) + "&queue=mail&phase=ready", "df"},
			{"settled_from=" + at(2, 0), "bi"},
			{"settled_before=" + at(2, 0), "a"}, {"settled_before=" + at(8, 0), "ab"},
			{"settled_before=" + at(3, 0) + "&phase=done", "b"}, {"settled_before=" + at(3, 0), "ab"},
			{"min_age=8m", "abc"}, {"max_age=2m", "j"}, {"min_age=2m&max_age=3m", "i"},
			{"min_age=8m&queue=mail", "ab"},
			{"min_attempts=1", "abchi"}, {"min_attempts=2", ""},
			{"min_attempts=1&contract=taskflow&phase=leased", "c"},
			{"error=connection+refused", "a"}, {"error=100%25_", "a"}, {"error=1%25", ""},
			{"error=refused&phase=done", ""}, {"error=x&contract=forgerun", "i"},
			{"text=%C3%BCBERMUT", "b"}, {"text=result_1", "b"}, {"text=result%251", ""},
			{"text=100%25", "fg"}, {"text=100%25&queue=other", "g"},
			{"text=%C3%BCbermut&phase=ready", ""},
		} {
			query, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			for size, order := range map[int]string{500: "oldest", 2: "newest", 1: ""} {
				if query.Del("cursor"); order != "" {
					query.Set("order", order)
				} else {
					query.Del("order")
				}
				want := tt.want
				if order != "oldest" {
					names := strings.Split(want, "")
					slices.Reverse(names)
					want = strings.Join(names, "")
				}
				if got := n.list(t, query, size); got != want {
					t.Errorf("AD-010 %s, %s in pages of %d: got %s, want %s", tt.query, order, size,
						got, want)
				}
			}
		}
		// A bulk operation has the same filters.
		preview := testkit.DecodeReply[struct{ Sample []item }](t, w.post(t, "/admin/v1/bulk",
			`{"action":"retry","dry_run":true,"filter":{"phase":"dead","worker":"w"}}`))
		if len(preview.Sample) != 2 || preview.Sample[0]["phase"] != "dead" {
			t.Errorf("AD-020 got %v", preview.Sample)
		}
		for _, list := range []string{`[%d,"%d"]`, `"%d,%d"`} {
			marked := testkit.DecodeReply[struct{ Matching, Refused int }](t, w.post(t,
				"/admin/v1/bulk", fmt.Sprintf(`{"action":"release","dry_run":true,"filter":{"number":`+
					list+`}}`, n.jobs["b"].Number, n.jobs["c"].Number)))
			if marked.Matching != 2 || marked.Refused != 1 {
				t.Errorf("AD-020 of two marked jobs got %+v", marked)
			}
		}
	})
}

// AD-010, AD-020: a job that is not due yet has the state of those that are ready, so both a list
// and a bulk operation by state have it.
func TestListJobsDelayed(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":0,"payload":1,
			"run_at":"`+w.clock.Now().Add(time.Hour).Format(time.RFC3339)+`"}`, "")
		for _, query := range []string{"state=queued", "state=queued&phase=waiting"} {
			got := get[jobsPage](t, w.world, "/admin/v1/jobs?"+query).Items
			if len(got) != 1 || got[0]["phase"] != "waiting" {
				t.Errorf("AD-010 %s: got %v", query, got)
			}
		}
		ready := get[jobsPage](t, w.world, "/admin/v1/jobs?state=queued&phase=ready").Items
		if len(ready) != 0 {
			t.Errorf("AD-010 ready: got %v", ready)
		}
		preview := testkit.DecodeReply[struct{ Matching int }](t, w.post(t, "/admin/v1/bulk",
			`{"action":"delete","dry_run":true,"filter":{"state":"queued"}}`))
		if preview.Matching != 1 {
			t.Errorf("AD-020 %d jobs match", preview.Matching)
		}
	})
}

// AD-010, G-AD-01: what a filter does not mean is refused and named, and hostile values are no
// errors of the server.
func TestListJobsRefuses(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		n, _ := fillJobs(t, w)
		for query, words := range map[string]string{
			"stat=READY": "stat", "queue=a&queu=b": "queu", "queue=": "queue", "state=NONE": "NONE",
			"state=READY,": "state", "state=ready": "ready", "phase=over": "phase",
			"contract=no": "taskflow", "contract=bulk": "contract", "parent=0": "parent",
			"parent=x": "parent", "number=0": "number", "number=1,x": "number", "number=1,,2": "number",
			"number=" + strings.Repeat("1,", 1000) + "1": "1000",
			"min_attempts=-1": "min_attempts", "order=up": "order",
			"created_from=2026": "created_from", "settled_from=0001-01-01T00:00:00Z": "year 1",
			"settled_before=x": "settled_before",
			"min_age=x":        "min_age", "max_age=-1s": "max_age", "limit=0": "limit",
			"limit=501": "limit", "queue=a&queue=b": "queue", "cursor=x": "cursor",
			"cursor=am9iczotMQ": "cursor", "queue=%00": "queue", "owner=%ff": "owner",
			"kind=a%00": "kind", "id=%ff": "id", "worker=%00": "worker", "text=%ff": "text",
			"error=%00": "error", "state=%ff": "state", "phase=%00": "phase",
			"contract=%ff": "contract",
		} {
			r := w.do(t, w.api.Token(), "GET", "/admin/v1/jobs?"+query, "")
			r.WantError(t, 400, "VALIDATION_ERROR", words)
		}
		for _, query := range []string{"queue=%27+OR+1%3D1+--", "id=%5C", "worker=%22%3B",
			"kind=%F0%9F%92%A5", "owner=" + strings.Repeat("o", 4000),
			"text=" + strings.Repeat("%25_", 1000), "error=%5B%5E%5D*%28", "min_attempts=2147483647",
			"parent=9223372036854775807", "created_from=0001-01-01T00:00:01Z",
			"id=" + strings.Repeat("x", 3000)} {
			got := get[jobsPage](t, w.world, "/admin/v1/jobs?"+query)
			if strings.HasPrefix(query, "created_from") != (len(got.Items) > 0) {
				t.Errorf("AD-010 %s: %d items", query, len(got.Items))
			}
		}
		w.do(t, w.api.Token(), "GET", "/admin/v1/jobs?order=oldest&cursor="+
			*get[jobsPage](t, w.world, "/admin/v1/jobs?limit=1").NextCursor, "").
			WantError(t, 400, "VALIDATION_ERROR", "cursor")
		// A cursor is the number of a job: with another filter it continues behind that.
		first := get[jobsPage](t, w.world, "/admin/v1/jobs?contract=forgerun&limit=1")
		rest := get[jobsPage](t, w.world, "/admin/v1/jobs?contract=relay&cursor="+*first.NextCursor)
		if len(rest.Items) != 2 || n.names[int64(rest.Items[0]["number"].(float64))] != "g" {
			t.Errorf("AD-010 the cursor of another filter leads to %v", rest.Items)
		}
		deadLetters := get[struct {
			Next *string `json:"next_cursor"`
		}](t, w.world, "/admin/v1/dead-letters?limit=1")
		w.do(t, w.api.Token(), "GET", "/admin/v1/jobs?cursor="+*deadLetters.Next, "").
			WantError(t, 400, "VALIDATION_ERROR", "cursor")
		w.do(t, "", "GET", "/admin/v1/jobs?stat=x", "").WantStatus(t, 401)
	})
}

// AD-012: error and text look at jobs for half a second at most, the newest first, and at 200,000
// jobs; the answer says up to when it has searched, and its cursor goes on. All other filters end a
// page after 12 ms.
func TestListJobsSearch(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		var passed atomic.Int64 // between two looks at the clock
		var elapsed atomic.Int64
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Elapsed = func() time.Duration {
				return time.Duration(elapsed.Add(passed.Load()))
			}
			w.addContracts(t, c)
		})
		start := w.clock.Now()
		const all = 1230
		for first := 0; first < all; first += 10 {
			var batch []engine.Submission
			for i := first; i < first+10; i++ {
				payload := fmt.Sprintf(`{"n":%d}`, i)
				if i%600 == 3 {
					payload = `{"n":"Needle"}`
				}
				batch = append(batch, engine.Submission{Job: job.Job{Queue: "q",
					ID: job.ID{JobType: "taskflow", Key: fmt.Sprint(i)}, Payload: []byte(payload)}})
			}
			if _, err := w.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(10 * time.Second)
		}
		for _, tt := range []struct {
			query  string
			passed time.Duration
			pages  int
			found  string
		}{
			{"text=nEEdle", 0, 1, "1203 603 3"},
			{"text=needle", 150 * time.Millisecond, 5, "1203 603 3"}, // three parts of 100 jobs each
			{"error=needle", 150 * time.Millisecond, 5, ""},
			{"worker=nobody", 0, 1, ""},
			{"worker=nobody", 40 * time.Millisecond, 25, ""}, // 51 jobs each: a first window
		} {
			elapsed.Store(0)
			passed.Store(int64(tt.passed))
			pages, path, before := 0, "/admin/v1/jobs?"+tt.query, w.clock.Now()
			var found []string
			for cursor := ""; ; {
				page := get[jobsPage](t, w.world, path+cursor)
				pages++
				for _, i := range page.Items {
					found = append(found, i["id"].(string))
				}
				if page.NextCursor == nil {
					if page.SearchedTo != nil {
						t.Errorf("AD-012 %s: the last page says %v", tt.query, page.SearchedTo)
					}
					break
				}
				if page.SearchedTo == nil || !page.SearchedTo.Before(before) ||
					page.SearchedTo.Before(start) {
					t.Fatalf("AD-012 %s: searched to %v", tt.query, page.SearchedTo)
				}
				before, cursor = *page.SearchedTo, "&cursor="+*page.NextCursor
			}
			if strings.Join(found, " ") != tt.found || pages != tt.pages {
				t.Errorf("AD-012 %s: found %v in %d pages, want %s in %d", tt.query, found, pages,
					tt.found, tt.pages)
			}
		}
	})
}
