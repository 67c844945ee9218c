package images_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	secrets "github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/testkit"
)

func readReceipt(t testing.TB, r testkit.Reply) receipt {
	t.Helper()
	return testkit.DecodeReply[receipt](t, r)
}

// guarded is a world whose API has a token.
func guarded(t testing.TB) *world {
	t.Helper()
	c := config()
	c.Token = secrets.NewSecret("images-token-images-token")
	return inMemory(t, c)
}

// claimed is a job as a worker outside gets it.
type claimed struct {
	JobID   string  `json:"job_id"`
	Queue   string  `json:"queue"`
	RunID   string  `json:"run_id"`
	Attempt int     `json:"attempt"`
	Lease   float64 `json:"lease_seconds"`
	Payload struct {
		JobID    string   `json:"jobId"`
		Type     string   `json:"type"`
		FileID   string   `json:"fileId"`
		UserID   *string  `json:"userId"`
		Key      string   `json:"storageKey"`
		Sizes    []int    `json:"requestedSizes"`
		Variants []string `json:"variantKeys"`
		Prefix   string   `json:"prefix"`
	}
}

// postRun is a request to the worker API.
func (w *world) postRun(t testing.TB, token string) *testkit.Workers {
	t.Helper()
	return testkit.OpenWorkers(t, w.engine, w.images.RemoteWorkers(), token)
}

// render is what a worker outside does, with the bytes as they are: it shares the directory of the
// objects.
func (w *world) render(t testing.TB, c *claimed) string {
	t.Helper()
	var all []string
	for i, size := range c.Payload.Sizes {
		body := pngOf(t, size, size)
		if err := os.WriteFile(filepath.Join(w.dir, bucket, c.Payload.Variants[i]+".png"), body,
			0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf(
			`{"size":%d,"width":%d,"height":%d,"bytes":%d,"key":"%s.png"}`, size, size, size,
			len(body), c.Payload.Variants[i]))
	}
	return `{"width":90,"height":90,"variants":[` + strings.Join(all, ",") + `]}`
}

func TestRemoteWorker(t *testing.T) {
	onEveryStoreOff(t, func(t *testing.T, w *world) {
		site := w.postRun(t, "")
		post := func(path, body string) testkit.Reply { return site.Post(t, path, body) }
		claim := func(id string) *claimed {
			c := testkit.DecodeReply[claimed](t,
				post("jobs/"+id+"/claim", `{"contract":"images","worker":"w"}`).WantStatus(t, 200))
			return &c
		}
		r := w.put(t, pngOf(t, 90, 90), "X-User-Id", "u")
		c := claim(r.JobID)
		t.Run("IP-008 G-IP-21 a worker outside gets what its message says, and where the "+
			"variants belong", func(t *testing.T) {
			p := &c.Payload
			stem := "images/" + r.FileID + "/"
			if p.JobID != r.JobID || p.Type != "process_file" || p.FileID != r.FileID ||
				text(p.UserID) != "u" || p.Key != stem+"original" ||
				encoded(p.Sizes) != "[16,64]" ||
				strings.Join(p.Variants, " ") != stem+"16 "+stem+"64" {
				t.Errorf("got %+v", p)
			}
			assertEqual(t, "queue", c.Queue, "process_file")
			assertEqual(t, "lease", c.Lease, lockTimeout.Seconds())
			assertEqual(t, "attempt", c.Attempt, 1)
			post("jobs/"+r.JobID+"/claim", `{"contract":"images"}`).WantError(t, 409,
				"NOT_CLAIMABLE")
		})
		result := w.render(t, c)
		t.Run("what was not made is refused, and the run goes on", func(t *testing.T) {
			for name, wrong := range map[string]string{"nothing": `null`,
				"no variants": `{"width":1,"height":1}`, "no dimensions": `{"variants":[]}`,
				"one variant":    `{"width":90,"height":90,"variants":[{"size":16,"width":16,"height":16,"bytes":1,"key":"images/` + r.FileID + `/16.png"}]}`,
				"another's key":  strings.ReplaceAll(result, r.FileID, r.JobID),
				"the original":   strings.ReplaceAll(result, "/16.png", "/original"),
				"no such object": strings.ReplaceAll(result, "16.png", "16.jpg"),
				"another length": strings.ReplaceAll(result, `"bytes":`, `"bytes":1`),
				"another size":   strings.ReplaceAll(result, `"size":16`, `"size":17`),
				"larger than all": strings.Replace(result, `"width":90,"height":90`,
					`"width":9,"height":9`, 1),
				"larger than asked": strings.ReplaceAll(result, `"width":16`, `"width":17`),
				"an unknown type":   strings.Replace(result, `{`, `{"mime_type":"text/html",`, 1)} {
				if got := post("runs/"+c.RunID+"/complete",
					`{"result":`+wrong+`}`); got.Status != 400 {
					t.Errorf("%s: %d %s", name, got.Status, got.Body)
				}
			}
			w.status(t, r.JobID, processing)
			post("runs/"+c.RunID+"/heartbeat", `{}`).WantStatus(t, 200)
		})
		t.Run("what was made completes the job", func(t *testing.T) {
			post("runs/"+c.RunID+"/complete", `{"result":`+result+`}`).WantStatus(t, 200)
			w.status(t, r.JobID, completed)
			f := w.file(t, r.FileID, "ready")
			assertEqual(t, "width", *f.Width, 90)
			assertEqual(t, "variant", w.Do(t, "GET", f.Variants[1].URL, "").WantStatus(t,
				200).Header.Get("Content-Type"), "image/png")
			assertEqual(t, "counted", metric(t, w.worker, "job_processed_total", "status",
				"completed"), 1.0)
			assertEqual(t, "logged", len(w.log.Lines(t,
				map[string]any{"msg": "attempt", "job_id": r.JobID, "current_state": "completed"})),
				1)
			post("runs/"+c.RunID+"/complete", `{"result":`+result+`}`).WantError(t, 409, "RUN_LOST")
		})
		t.Run("IP-033 IP-057 failures, and IP-041 G-IP-04 the late result of a worker that lost "+
			"its lock", func(t *testing.T) {
			id := w.create(t, "process_file", r.FileID).JobID
			first := claim(id)
			w.clock.Advance(lockTimeout + time.Microsecond)
			second := claim(id)
			post("runs/"+first.RunID+"/complete", `{"result":`+result+`}`).WantError(t, 409,
				"RUN_LOST")
			for verb, body := range map[string]string{"fail": `{"error":"late","retryable":false}`,
				"release": `{}`, "heartbeat": `{}`} {
				post("runs/"+first.RunID+"/"+verb, body).WantError(t, 409, "RUN_LOST")
			}
			assertEqual(t, "attempts", w.status(t, id, processing).AttemptCount, 2)
			post("runs/"+second.RunID+"/fail",
				`{"error":"vips says no","error_type":"vips","retryable":true}`).WantStatus(t, 200)
			assertEqual(t, "reason", text(w.status(t, id, retryable).LastError), "vips says no")
			assertEqual(t, "a type of their own counts as other",
				metric(t, w.worker, "image_processing_errors_total", "error_type", "other"), 1.0)
			w.clock.Advance(10 * time.Second)
			last := claim(id)
			assertEqual(t, "attempt", last.Attempt, 3)
			assertEqual(t, "released", testkit.DecodeReply[jobView](t,
				post("runs/"+last.RunID+"/release", `{}`).WantStatus(t, 200)).Status, "failed")
		})
		t.Run("G-IP-17 an original of too many pixels fails the job for good, whoever decoded it",
			func(t *testing.T) {
				for size, want := range map[string]job.State{`"width":1000,"height":1000`: completed,
					`"width":1000,"height":1001`:                               failed,
					`"width":9223372036854775807,"height":9223372036854775807`: failed} {
					id := w.create(t, "process_file", r.FileID).JobID
					large := strings.Replace(result, `"width":90,"height":90`, size, 1)
					post("runs/"+claim(id).RunID+"/complete", `{"result":`+large+`}`).WantStatus(t,
						200)
					if v := w.status(t, id, want); want == failed {
						assertEqual(t, "reason", text(v.LastErrorType), "too_large")
					}
				}
			})
		t.Run("of many results in one request what was not made is refused alone",
			func(t *testing.T) {
				refused, made, given := w.create(t, "process_file", r.FileID).JobID,
					w.create(t, "process_file", r.FileID).JobID,
					w.create(t, "process_file", r.FileID).JobID
				run := claim(refused).RunID
				got := post("outcomes", `{"outcomes":[{"run_id":"`+run+`","complete":{"result":`+
					strings.ReplaceAll(result, "16.png", "16.jpg")+`}},
				{"run_id":"`+claim(made).RunID+`","complete":{"result":`+result+`}},{"run_id":"`+claim(given).RunID+`","release":{}}]}`).WantStatus(t, 200)
				ends := testkit.DecodeReply[struct {
					Outcomes []struct{ Status, Code, Detail string }
				}](t, got).Outcomes
				assertEqual(t, "refused", ends[0].Code, "VALIDATION_ERROR")
				assertEqual(t, "because", strings.Contains(ends[0].Detail, "does not exist"),
					true)
				assertEqual(t, "made", ends[1].Status, string(completed))
				w.status(t, made, completed)
				assertEqual(t, "given back", ends[2].Status, w.job(t, given).Status)
				w.status(t, refused, processing)
				post("outcomes", `{"outcomes":[{"run_id":"`+run+`","complete":{"result":`+result+
					`}}]}`).WantStatus(t, 200)
				w.status(t, refused, completed)
			})
		t.Run("a file that was deleted meanwhile fails the job, and nothing is left",
			func(t *testing.T) {
				other := w.put(t, pngOf(t, 90, 90))
				c := claim(other.JobID)
				deletion := claim(testkit.DecodeReply[receipt](t,
					w.Do(t, "DELETE", filesPath+"/"+other.FileID, "").WantStatus(t, 202)).JobID)
				assertEqual(t, "prefix", deletion.Payload.Prefix, "images/"+other.FileID+"/")
				post("runs/"+deletion.RunID+"/complete", `{}`).WantError(t, 400, "VALIDATION_ERROR",
					"still exists")
				post("runs/"+c.RunID+"/complete", `{"result":`+w.render(t, c)+`}`).WantStatus(t,
					200)
				assertEqual(t, "reason", text(w.status(t, other.JobID, failed).LastErrorType),
					"file_deleted")
				post("runs/"+deletion.RunID+"/complete", `{}`).WantStatus(t, 200)
				assertEqual(t, "left", strings.Contains(strings.Join(w.stored(t), " "),
					other.FileID),
					false)
			})
		for how, end := range map[string]func(run string){
			"fails for good": func(run string) {
				post("runs/"+run+"/fail", `{"error":"no","retryable":false}`).WantStatus(t, 200)
			},
			"is lost": func(string) {
				w.clock.Advance(lockTimeout + time.Microsecond)
				w.sweep(t)
			},
		} {
			t.Run("G-IP-15 what a last attempt has written after the deletion is removed when it "+
				how, func(t *testing.T) {
				other := w.put(t, pngOf(t, 90, 90))
				for range 2 {
					post("runs/"+claim(other.JobID).RunID+"/release", `{}`).WantStatus(t, 200)
				}
				c := claim(other.JobID)
				w.attempt(t, testkit.DecodeReply[receipt](t,
					w.Do(t, "DELETE", filesPath+"/"+other.FileID, "").WantStatus(t, 202)).JobID)
				w.messages(t)
				if err := os.MkdirAll(filepath.Join(w.dir, bucket, "images", other.FileID),
					0o700); err != nil {
					t.Fatal(err)
				}
				w.render(t, c)
				end(c.RunID)
				w.status(t, other.JobID, failed)
				w.messages(t)
				assertEqual(t, "left", strings.Contains(strings.Join(w.stored(t), " "),
					other.FileID), false)
			})
		}
	})
}

// TestUnsortedSizes checks that a remote worker completes jobs whose sizes come from settings in an
// order of their own, also in the order of the sizes.
func TestUnsortedSizes(t *testing.T) {
	t.Parallel()
	c := config()
	c.NoLocalWorkers, c.Sizes = true, []int{64, 16, 32}
	w := inMemory(t, c)
	site := w.postRun(t, "")
	r := w.put(t, pngOf(t, 90, 90))
	job := testkit.DecodeReply[claimed](t, site.Post(t, "jobs/"+r.JobID+"/claim",
		`{"contract":"images"}`).WantStatus(t, 200))
	result := w.render(t, &job)
	site.Post(t, "runs/"+job.RunID+"/complete",
		`{"result":`+strings.ReplaceAll(result, `"size":16`, `"size":17`)+`}`).WantStatus(t, 400)
	site.Post(t, "runs/"+job.RunID+"/complete", `{"result":`+result+`}`).WantStatus(t, 200)
	w.status(t, r.JobID, completed)
	assertEqual(t, "variants", len(w.file(t, r.FileID, "ready").Variants), 3)
}

// onEveryStoreOff is onEveryStore for a node that leaves the jobs to others.
func onEveryStoreOff(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	c := config()
	c.NoLocalWorkers = true
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) { test(t, newWorldAt(t, p, c)) })
}

func TestWorkersAreNotClients(t *testing.T) {
	t.Parallel()
	t.Run("IP-036 G-IP-01 nothing under the API does what workers do, and its token is none of theirs", func(t *testing.T) {
		const clients, workers = "Bearer images-token-images-token",
			"Bearer workers-token-workers-token"
		c := config()
		c.Token, c.NoLocalWorkers = secrets.NewSecret("images-token-images-token"), true
		w := inMemory(t, c)
		site := w.postRun(t, "workers-token-workers-token")
		id := readReceipt(t, w.send(t, "image/png", pngOf(t, 2, 2), "", "Authorization",
			clients).WantStatus(t, 202)).JobID
		job := testkit.DecodeReply[claimed](t,
			site.Do(t, "POST", "/worker/v1/jobs/"+id+"/claim", `{"contract":"images"}`,
				"Authorization", workers).WantStatus(t, 200))
		before := encoded(w.state(t, id))
		for path, body := range map[string]string{"claims": `{"contract":"images"}`,
			"jobs/" + id + "/claim":            `{"contract":"images"}`,
			"runs/" + job.RunID + "/heartbeat": `{}`, "runs/" + job.RunID + "/start": `{}`,
			"runs/" + job.RunID + "/complete": `{}`,
			"runs/" + job.RunID + "/fail":     `{"error":"x","retryable":false}`,
			"runs/" + job.RunID + "/release":  `{}`,
			"outcomes": `{"outcomes":[{"run_id":"` + job.RunID +
				`","release":{}}]}`} {
			site.Do(t, "POST", "/worker/v1/"+path, body, "Authorization", clients).WantError(t, 401,
				"UNAUTHORIZED")
			for _, method := range []string{"POST", "PUT", "PATCH"} {
				got := w.Do(t, method, "/images/v1/"+path, body, "Authorization", clients)
				if got.Status != 404 && got.Status != 405 {
					t.Errorf("%s /images/v1/%s: %d %s", method, path, got.Status, got.Body)
				}
			}
			for _, verb := range []string{"claim", "complete", "fail", "retry", "drop", "release"} {
				w.Do(t, "POST", jobsPath+"/"+id+"/"+verb, body, "Authorization",
					clients).WantError(t, 404, "NOT_FOUND")
			}
		}
		assertEqual(t, "the job", encoded(w.state(t, id)), before)
		site.Do(t, "POST", "/worker/v1/runs/"+job.RunID+"/heartbeat", `{}`, "Authorization",
			workers).WantStatus(t, 200)
	})
	t.Run("a node that makes the attempts itself gives none", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.put(t, pngOf(t, 2, 2))
		site := w.postRun(t, "")
		got := site.Post(t, "jobs/"+r.JobID+"/claim", `{"contract":"images"}`)
		assertEqual(t, "status", got.Status, 409)
		w.status(t, r.JobID, queued)
	})
}

// IP-002 IP-005: whoever makes an attempt, it is one of the same job, counted and kept in its
// history.
func TestHistory(t *testing.T) {
	t.Parallel()
	t.Run("IP-002 IP-005 attempts are recorded one by one", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.put(t, pngOf(t, 20, 20))
		w.fail(t, r.JobID)
		w.clock.Advance(5 * time.Second)
		w.attempt(t, r.JobID)
		events, err := w.engine.History(context.Background(), engineJobID(r.JobID))
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]bool{}
		for _, e := range events {
			if !e.Run.IsZero() {
				runs[e.Run.String()] = true
			}
		}
		assertEqual(t, "attempts", len(runs), 2)
		assertEqual(t, "counted", w.job(t, r.JobID).AttemptCount, 2)
	})
}
