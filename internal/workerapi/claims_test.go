package workerapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"
)

func TestClaims(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 3)
		w.submit(t, testContract, "b", 2)
		w.submit(t, testContract, "here", 1)
		w.submit(t, otherContract, "a", 1)
		t.Run("G-X-20 max is one by default and a job has all its members", func(t *testing.T) {
			jobs := w.claim(t, `,"queues":["a"],"worker":"me"`)
			if len(jobs) != 1 {
				t.Fatalf("got %d jobs", len(jobs))
			}
			j := jobs[0]
			if j.JobID != "a-0" || j.Contract != testContract || j.Queue != "a" || j.Attempt != 1 ||
				string(j.State) != "null" || j.LeaseSeconds != 30 {
				t.Errorf("got %+v", j)
			}
			if got, want := string(j.Payload),
				`{"n": 0,  "big": 123456789012345678901234567890}`; got != want {
				t.Errorf("payload %s, want %s", got, want)
			}
			stored := w.wantState(t, "a-0", "running")
			if stored.Run.String() != j.RunID || stored.Worker != "me" {
				t.Errorf("run %s of %q, want %s of me", stored.Run, stored.Worker, j.RunID)
			}
		})
		t.Run("G-X-20 queues left out mean all but those that are run here", func(t *testing.T) {
			jobs := w.claim(t, `,"max":100,"queues":null`)
			if len(jobs) != 4 {
				t.Fatalf("got %d jobs, want 4", len(jobs))
			}
			for _, j := range jobs {
				if j.Queue == "here" || j.Contract != testContract {
					t.Errorf("got %+v", j)
				}
			}
			if again := w.claim(t, `,"max":1000000`); len(again) != 0 {
				t.Errorf("got %d more", len(again))
			}
		})
		t.Run("G-TF-37 a queue with a handler is refused by name", func(t *testing.T) {
			w.post(t, "/worker/v1/claims", `{"contract":"made","queues":["a","here"]}`).WantError(t,
				409, "NOT_CLAIMABLE")
			w.post(t, "/worker/v1/jobs/here-0/claim", `{"contract":"made"}`).WantError(t, 409,
				"NOT_CLAIMABLE")
			w.wantState(t, "here-0", "ready")
		})
	})
}

// TestMaxAboveLimit: G-X-20: a max above 1000 is no error and counts as 1000.
func TestMaxAboveLimit(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	w.submit(t, testContract, "a", 1001)
	for _, want := range []int{1000, 1} {
		if got := w.claim(t, `,"max":100000`); len(got) != want {
			t.Errorf("claimed %d jobs, want %d", len(got), want)
		}
	}
}

func TestWholeContractBound(t *testing.T) {
	t.Parallel()
	c := newContract()
	c.RunsLocally = func(string) bool { return true }
	w := inMemory(t, "", 0, c)
	w.submit(t, testContract, "a", 1)
	w.post(t, "/worker/v1/claims", `{"contract":"made"}`).WantError(t, 409, "NOT_CLAIMABLE")
	w.post(t, "/worker/v1/jobs/a-0/claim", `{"contract":"made"}`).WantError(t, 409, "NOT_CLAIMABLE")
	w.wantState(t, "a-0", "ready")
}

func TestClaimByID(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 1)
		w.submit(t, otherContract, "o", 1)
		path := "/worker/v1/jobs/a-0/claim"
		j := testkit.DecodeReply[claimedJob](t,
			w.post(t, path, `{"contract":"made","worker":"me"}`).WantStatus(t, 200))
		if j.JobID != "a-0" || j.Attempt != 1 ||
			w.wantState(t, "a-0", "running").Run.String() != j.RunID {
			t.Errorf("got %+v", j)
		}
		w.post(t, path, `{"contract":"made"}`).WantError(t, 409, "NOT_CLAIMABLE") // leased
		w.postRun(t, j.RunID, "complete", "").WantStatus(t, 200)
		w.post(t, path, `{"contract":"made"}`).WantError(t, 409, "NOT_CLAIMABLE") // over
		w.post(t, "/worker/v1/jobs/nobody/claim", `{"contract":"made"}`).WantError(t, 404,
			"NOT_FOUND")
		w.post(t, "/worker/v1/jobs/o-0/claim", `{"contract":"made"}`).WantError(t, 404, "NOT_FOUND")
		w.post(t, "/worker/v1/jobs/o-0/claim", `{"contract":"other"}`).WantError(t, 400,
			"VALIDATION_ERROR")
		w.post(t, path, ``).WantError(t, 400, "VALIDATION_ERROR")
	})
}

func TestClaimByIDWithoutSlot(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 1, newContract())
	w.submit(t, testContract, "a", 2)
	first := w.claimOne(t, "a")
	w.post(t, "/worker/v1/jobs/a-1/claim", `{"contract":"made"}`).WantError(t, 409, "NOT_CLAIMABLE")
	if jobs := w.claim(t, ``); len(jobs) != 0 {
		t.Errorf("got %d jobs beyond the limit", len(jobs))
	}
	w.postRun(t, first.RunID, "complete", "").WantStatus(t, 200)
	w.post(t, "/worker/v1/jobs/a-1/claim", `{"contract":"made"}`).WantStatus(t, 200)
}

// A claim that waits gets the job that comes meanwhile, and no other claim does.
func TestLongPoll(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		got := make(chan []claimedJob, 2)
		for i, members := range []string{`,"queues":["a"],"wait_seconds":30`,
			`,"wait_seconds":30`} {
			go func() { got <- w.claim(t, members) }()
			// whether it waits already or not
			w.submitOne(t, job.ID{JobType: testContract, Key: fmt.Sprint("late-", i)}, "a")
			select {
			case jobs := <-got:
				if len(jobs) != 1 || jobs[0].Queue != "a" {
					t.Errorf("%s: got %+v", members, jobs)
				}
			case <-time.After(25 * time.Second):
				t.Fatalf("%s: timed out waiting", members)
			}
		}
		go func() { got <- w.claim(t, `,"wait_seconds":30`) }()
		w.engine.Close() // a node that stops answers at once
		select {
		case jobs := <-got:
			if len(jobs) != 0 {
				t.Errorf("got %+v of a node that stops", jobs)
			}
		case <-time.After(25 * time.Second):
			t.Fatal("the end of the node woke no claim")
		}
	})
}

// A caller whose connection breaks before it has the whole answer has no jobs: they go back at
// once, with nothing counted.
func TestClaimIsCutOff(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const jobs = 16
		for i := range jobs {
			one := engine.Submission{Job: job.Job{ID: job.ID{JobType: testContract,
				Key: fmt.Sprint(i)}, Queue: "a", Lease: time.Hour, MaxAttempts: 3,
				// more than the connection holds
				Payload: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}}
			if _, err := w.engine.Submit(t.Context(), engine.Unique,
				[]engine.Submission{one}); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"contract":"made","max":%d}`, jobs)
		fmt.Fprintf(conn, "POST /worker/v1/claims HTTP/1.1\r\nHost: x\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil ||
			line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("answered %q, %v", line, err)
		}
		if leased, err := w.engine.Queues(t.Context(), testContract); err != nil ||
			leased[0].Leased != jobs {
			t.Fatalf("%+v, %v: want %d claimed jobs", leased, err, jobs)
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset
		conn.Close()
		for back := 0; back < jobs; {
			again, err := w.engine.Claim(t.Context(),
				engine.ClaimRequest{JobType: testContract, Max: jobs, Worker: "w",
					Wait: 25 * time.Second})
			if err != nil || len(again) == 0 {
				t.Fatalf("%d of %d jobs came back, %v", back, jobs, err)
			}
			for _, j := range again {
				if j.Attempts != 1 || j.FailedAttempts != 0 {
					t.Errorf("job %s came back with %d runs, %d failures", j.ID.Key, j.Attempts,
						j.FailedAttempts)
				}
			}
			back += len(again)
		}
	})
}

func TestValidation(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	for name, body := range map[string]string{
		"no body":            ``,
		"no contract":        `{}`,
		"null contract":      `{"contract":null}`,
		"unknown contract":   `{"contract":"nobody"}`,
		"relay":              `{"contract":"relay"}`,
		"other contract":     `{"contract":"other"}`,
		"no JSON":            `{"contract":`,
		"trailing":           `{"contract":"made"} {}`,
		"array":              `[]`,
		"bad UTF-8":          "{\"contract\":\"\xff\"}",
		"queues no array":    `{"contract":"made","queues":"a"}`,
		"queues empty":       `{"contract":"made","queues":[]}`,
		"queue empty":        `{"contract":"made","queues":[""]}`,
		"queue no string":    `{"contract":"made","queues":[1]}`,
		"queue null":         `{"contract":"made","queues":[null]}`,
		"queue with U+0000":  `{"contract":"made","queues":["a\u0000"]}`,
		"queue too long":     `{"contract":"made","queues":["` + strings.Repeat("q", 1025) + `"]}`,
		"max 0":              `{"contract":"made","max":0}`,
		"max text":           `{"contract":"made","max":"1"}`,
		"max fraction":       `{"contract":"made","max":1.5}`,
		"wait below 0":       `{"contract":"made","wait_seconds":-1}`,
		"wait true":          `{"contract":"made","wait_seconds":true}`,
		"worker empty":       `{"contract":"made","worker":""}`,
		"worker with U+0000": `{"contract":"made","worker":"\u0000"}`,
		"worker too long":    `{"contract":"made","worker":"` + strings.Repeat("w", 256) + `"}`,
		"surrogate":          `{"contract":"made","worker":"\ud800"}`,
	} {
		t.Run("G-X-20 "+name, func(t *testing.T) {
			w.post(t, "/worker/v1/claims", body).WantError(t, 400, "VALIDATION_ERROR")
		})
	}
	t.Run("G-X-20 members that are not known", func(t *testing.T) {
		w.submit(t, testContract, "a", 1)
		for _, path := range []string{"/worker/v1/claims", "/worker/v1/jobs/a-0/claim"} {
			w.post(t, path, `{"contract":"made","queue":"b"}`).WantError(t, 400, "VALIDATION_ERROR",
				`"queue"`, "worker")
			w.post(t, path, `{"contract":"made","Worker":null}`).WantError(t, 400,
				"VALIDATION_ERROR", `"Worker"`)
			w.post(t, path, `{"contract":"made","`+strings.Repeat("x", 1<<20)+`":1}`).WantError(t,
				400, "VALIDATION_ERROR", `"`+strings.Repeat("x", 100)+`"`)
		}
		w.post(t, "/worker/v1/jobs/a-0/claim", `{"contract":"made","queues":["a"]}`).WantError(t,
			400, "VALIDATION_ERROR", `"queues"`)
		w.wantState(t, "a-0", "ready")
	})
	t.Run("many queues", func(t *testing.T) {
		names := make([]string, 101)
		for i := range names {
			names[i] = fmt.Sprintf(`"q%d"`, i)
		}
		w.post(t, "/worker/v1/claims", `{"contract":"made","queues":[`+strings.Join(names, ",")+
			`]}`).WantError(t, 400, "VALIDATION_ERROR")
	})
	t.Run("no JSON by its type", func(t *testing.T) {
		w.post(t, "/worker/v1/claims", `{"contract":"made"}`, "Content-Type",
			"text/plain").WantError(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	})
	t.Run("too large", func(t *testing.T) {
		w.post(t, "/worker/v1/claims", strings.Repeat(" ", 4<<20+1)).WantError(t, 413,
			"PAYLOAD_TOO_LARGE")
	})
	t.Run("G-X-02 paths and methods", func(t *testing.T) {
		w.post(t, "/worker/v1/nothing", ``).WantError(t, 404, "NOT_FOUND")
		w.post(t, "/worker/v1/jobs//claim", `{}`).WantError(t, 404, "NOT_FOUND")
		w.Do(t, "GET", "/worker/v1/claims", ``).WantError(t, 405, "METHOD_NOT_ALLOWED")
		w.Do(t, "DELETE", "/worker/v1/runs/x/complete", ``).WantError(t, 405, "METHOD_NOT_ALLOWED")
	})
}

func TestToken(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "the-token", 0, newContract())
	for _, path := range []string{"/worker/v1/claims", "/worker/v1/jobs/a/claim",
		"/worker/v1/runs/x/complete", "/worker/v1/outcomes", "/worker/v1/nothing"} {
		w.post(t, path, `{"contract":"made"}`).WantError(t, 401, "UNAUTHORIZED")
		w.post(t, path, `{"contract":"made"}`, "Authorization", "Bearer another").WantError(t, 401,
			"UNAUTHORIZED")
	}
	w.post(t, "/worker/v1/claims", `{"contract":"made"}`, "Authorization",
		"Bearer the-token").WantStatus(t, 200)
}

func TestNew(t *testing.T) {
	t.Parallel()
	good := workerapi.Config{Engine: testkit.MemoryEngine(t), Log: discard,
		Contracts: []workerapi.Adapter{newContract()}}
	if _, err := workerapi.New(good); err != nil {
		t.Fatal(err)
	}
	half := newContract()
	half.Fail = nil
	for name, invalidate := range map[string]func(*workerapi.Config){
		"no engine": func(c *workerapi.Config) { c.Engine = nil },
		"no log":    func(c *workerapi.Config) { c.Log = nil },
		"none":      func(c *workerapi.Config) { c.Contracts = nil },
		"twice": func(c *workerapi.Config) {
			c.Contracts = []workerapi.Adapter{newContract(), newContract()}
		},
		"half": func(c *workerapi.Config) { c.Contracts = []workerapi.Adapter{half} },
	} {
		c := good
		invalidate(&c)
		if _, err := workerapi.New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).WantRoutes(t, workerapi.Routes(), 8)
}

// TestUnknownQuery: a route that changes something refuses query parameters that it does not have.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	document(t).WantUnknownQueriesRefused(t, "VALIDATION_ERROR",
		func(method, path string) testkit.Reply {
			return w.Do(t, method, path, "{}")
		})
}

func TestKinds(t *testing.T) {
	t.Parallel()
	testkit.CheckErrorTable(t, workerapi.ErrorTable)
	for kind, want := range map[job.Kind]string{job.Unavailable: "STORAGE_UNAVAILABLE",
		job.ReadOnly: "STORAGE_UNAVAILABLE",
		job.Timeout:  "STORAGE_UNAVAILABLE", job.RunLost: "RUN_LOST",
		job.Internal: "INTERNAL_ERROR"} {
		if code, status := workerapi.CodeOf(fmt.Errorf("wrapped: %w",
			&job.Error{Kind: kind})); code != want || status == 0 {
			t.Errorf("%s is %s %d, want %s", kind, code, status, want)
		}
	}
}

func TestStoreOutage(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	w.submit(t, testContract, "a", 2)
	j := w.claimOne(t, "a")
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("G-X-20 STORAGE_UNAVAILABLE", func(t *testing.T) {
		w.post(t, "/worker/v1/claims", `{"contract":"made"}`).WantError(t, 503,
			"STORAGE_UNAVAILABLE")
		w.post(t, "/worker/v1/jobs/a-1/claim", `{"contract":"made"}`).WantError(t, 503,
			"STORAGE_UNAVAILABLE")
		for _, verb := range []string{"start", "heartbeat", "complete", "release"} {
			w.postRun(t, j.RunID, verb, ``).WantError(t, 503, "STORAGE_UNAVAILABLE")
		}
		w.post(t, "/worker/v1/outcomes",
			outcomes(outcomeJSON(j.RunID, "release", `{}`),
				outcomeJSON("no-uuid", "release", `{}`))).WantError(t, 503, "STORAGE_UNAVAILABLE")
	})
}

// A crowd takes every job exactly once.
func TestCrowd(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const jobs, crowd = 300, 24
		w.submit(t, testContract, "a", jobs)
		var mu sync.Mutex
		runs := map[string]int{}
		var all sync.WaitGroup
		for range crowd {
			all.Go(func() {
				for {
					got := w.claim(t, `,"max":3`)
					if len(got) == 0 {
						return
					}
					for _, j := range got {
						r := w.postRun(t, j.RunID, "complete", `{"result":{"ok":true}}`)
						mu.Lock()
						runs[j.JobID]++
						mu.Unlock()
						if r.Status != 200 || !strings.Contains(r.Body, `"COMPLETED"`) {
							t.Errorf("got %d %s", r.Status, r.Body)
						}
					}
				}
			})
		}
		all.Wait()
		for i := range jobs {
			id := fmt.Sprintf("a-%d", i)
			if runs[id] != 1 {
				t.Errorf("job %s was run %d times", id, runs[id])
			}
		}
		counts, err := w.engine.Queues(context.Background(), testContract)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			if c.Jobs() != 0 {
				t.Errorf("left: %+v", c)
			}
		}
	})
}
