package images_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func TestUpload(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		picture := jpegOf(t, 100, 50)
		r := w.put(t, picture, "X-User-Id", "u-7")
		t.Run("IP-001 IP-027 an upload is a job that is queued, and found by its id",
			func(t *testing.T) {
				assertEqual(t, "status", r.Status, "queued")
				assertEqual(t, "file", w.status(t, r.JobID, queued).FileID, r.FileID)
				w.Do(t, "GET", jobsPath+"/"+r.FileID, "").WantError(t, 404, "JOB_NOT_FOUND")
				w.Do(t, "GET", jobsPath+"/no-uuid", "").WantError(t, 404, "JOB_NOT_FOUND")
			})
		t.Run("IP-007 IP-028 IP-006 all members of a job are read", func(t *testing.T) {
			v := w.job(t, r.JobID)
			assertEqual(t, "type", v.JobType, "process_file")
			assertEqual(t, "attempts", v.AttemptCount, 0)
			assertEqual(t, "most attempts", v.MaxAttempts, 3)
			assertEqual(t, "user", text(v.UserID), "u-7")
			assertEqual(t, "error", text(v.LastError)+text(v.LastErrorType), "nullnull")
			assertEqual(t, "not locked", v.LockedAt == nil, true)
			if !v.CreatedAt.Equal(testkit.StartTime) || v.UpdatedAt.Before(v.CreatedAt) {
				t.Errorf("created %s, updated %s", v.CreatedAt, v.UpdatedAt)
			}
		})
		t.Run("the original is kept byte for byte, under a key made of the id", func(t *testing.T) {
			assertEqual(t, "objects", strings.Join(w.stored(t), " "),
				"images/"+r.FileID+"/original")
			got := w.Do(t, "GET", filesPath+"/"+r.FileID+"/content", "").WantStatus(t, 200)
			assertEqual(t, "content", got.Body == string(picture), true)
			assertEqual(t, "type", got.Header.Get("Content-Type"), "image/jpeg")
			assertEqual(t, "sniffing", got.Header.Get("X-Content-Type-Options"), "nosniff")
			assertEqual(t, "policy", got.Header.Get("Content-Security-Policy"),
				"default-src 'none'; sandbox")
			v := w.file(t, r.FileID, "processing")
			assertEqual(t, "size", v.Size, int64(len(picture)))
			assertEqual(t, "dimensions", v.Width == nil && v.Height == nil && len(v.Variants) == 0,
				true)
			assertEqual(t, "job", v.JobID, r.JobID)
		})
		t.Run("who has the content already is not sent it", func(t *testing.T) {
			path := filesPath + "/" + r.FileID + "/content"
			tag := w.Do(t, "GET", path, "").Header.Get("ETag")
			w.Do(t, "GET", path, "", "If-None-Match", `"x", `+tag).WantStatus(t, 304).WantEmpty(t)
			w.Do(t, "GET", path, "", "If-None-Match", `"x"`).WantStatus(t, 200)
		})
		t.Run("a form", func(t *testing.T) {
			f := testkit.DecodeReply[receipt](t,
				w.form(t, formPart{"file", "a b.png", "", string(pngOf(t, 9, 9))},
					formPart{"sizes", "", "", "8, 4,8"}).WantStatus(t, 202))
			assertEqual(t, "type", w.file(t, f.FileID, "processing").MIME, "image/png")
			assertEqual(t, "sizes", string(w.state(t, f.JobID).Definition),
				`{"mime_type":"image/png","size_bytes":`+
					encoded(w.file(t, f.FileID, "processing").Size)+`,"sizes":[4,8]}`)
		})
		t.Run("Idempotency-Key: the first upload is answered", func(t *testing.T) {
			jobs, objects := w.jobs(t), len(w.stored(t))
			answers := testkit.RunConcurrently(8, func(int) receipt {
				return w.put(t, picture, "Idempotency-Key", "k")
			})
			for _, a := range append(answers, w.put(t, pngOf(t, 3, 3), "Idempotency-Key", "k")) {
				assertEqual(t, "job", a.JobID, answers[0].JobID)
				assertEqual(t, "file", a.FileID, answers[0].FileID)
			}
			assertEqual(t, "jobs", w.jobs(t)-jobs, 1)
			assertEqual(t, "objects", len(w.stored(t))-objects, 1)
			w.send(t, "image/jpeg", picture, "", "Idempotency-Key",
				strings.Repeat("k", 256)).WantError(t, 400, "VALIDATION_FAILED", "Idempotency-Key")
		})
	})
}

func TestDeclared(t *testing.T) {
	t.Parallel()
	t.Run("G-IP-17 what an upload says it is decides whether it is taken", declaredTypes)
}

func declaredTypes(t *testing.T) {
	w := inMemory(t, config())
	for _, c := range []struct{ mime, file, want string }{
		{"image/jpeg", "x.txt", "image/jpeg"}, {"image/png; charset=x", "", "image/png"},
		{"IMAGE/GIF", "", "image/gif"}, {"image/webp", "", "image/webp"},
		{"image/jpg", "", "image/jpeg"}, {"", "x.JPEG", "image/jpeg"},
		{"application/octet-stream", "x.webp", "image/webp"},
		{"image/svg+xml", "x.png", ""}, {"image/tiff", "", ""}, {"application/pdf", "x.jpg", ""},
		{"", "x.svg", ""}, {"", "", ""}, {"text/html", "x.jpg", ""}, {"/", "x.jpg", ""},
	} {
		r := w.form(t, formPart{"file", c.file, c.mime, "anything"})
		if c.want == "" {
			r.WantError(t, 415, "UNSUPPORTED_IMAGE_TYPE")
			continue
		}
		assertEqual(t, c.mime+" "+c.file,
			w.file(t, testkit.DecodeReply[receipt](t, r.WantStatus(t, 202)).FileID,
				"processing").MIME, c.want)
	}
	before := len(w.stored(t))
	w.send(t, "application/pdf", []byte("%PDF"), "").WantError(t, 415, "UNSUPPORTED_IMAGE_TYPE")
	w.send(t, "application/x-www-form-urlencoded", []byte("a=b"), "").WantError(t, 415,
		"UNSUPPORTED_IMAGE_TYPE")
	assertEqual(t, "objects of what was refused", len(w.stored(t))-before, 0)
}

// What is sent in another form than its own is not kept in that form.
func TestEncodedUploads(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(pngOf(t, 9, 9))
	z.Close()
	for _, encoding := range []string{"gzip", "GZIP", "br", "identity, gzip", "x"} {
		w.send(t, "image/png", zipped.Bytes(), "", "Content-Encoding", encoding).WantError(t, 415,
			"UNSUPPORTED_MEDIA_TYPE", "Content-Encoding")
		w.Do(t, "POST", jobsPath, `{}`, "Content-Encoding", encoding).WantError(t, 415,
			"UNSUPPORTED_MEDIA_TYPE", "Content-Encoding")
	}
	const boundary = "--b\r\nContent-Disposition: form-data; name=\"file\"; " +
		"filename=\"x.png\"\r\nContent-Encoding: gzip\r\n\r\n"
	w.Do(t, "POST", filesPath, boundary+zipped.String()+"\r\n--b--\r\n", "Content-Type",
		"multipart/form-data; boundary=b").WantError(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	assertEqual(t, "jobs", w.jobs(t), 0)
	assertEqual(t, "objects", len(w.stored(t)), 0)
	w.put(t, pngOf(t, 9, 9), "Content-Encoding", "identity")
}

// An upload has ended, one way or the other, long before its original could be taken for one that
// was left behind.
func TestSlowUploads(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			pause  time.Duration // before the rest of the form
			status int
		}{"in time": {30*time.Minute - time.Second, 202}, "too late": {59 * time.Minute, 400}} {
			t.Run(name, func(t *testing.T) {
				before, picture := len(w.stored(t)), pngOf(t, 9, 9)
				body, form := io.Pipe()
				parts := multipart.NewWriter(form)
				sent := make(chan testkit.Reply)
				go func() {
					req, _ := http.NewRequest("POST", w.URL+filesPath, body)
					// else it would be read before it is sent, to be held against the document
					req.ContentLength = -1
					req.Header.Set(testkit.HeaderUndocumented, "1")
					req.Header.Set("Content-Type", parts.FormDataContentType())
					sent <- w.Send(t, req)
				}()
				file, _ := parts.CreateFormFile("file", "x.png")
				file.Write(picture)
				// what follows the file shows that it has ended
				sizes, _ := parts.CreateFormField("sizes")
				testkit.WaitUntil(t, "the file to be stored", func() bool {
					return len(w.stored(t)) == before+1
				})
				w.clock.Advance(c.pause)
				if err := w.images.Sweeper()(context.Background()); err != nil {
					t.Fatal(err)
				}
				assertEqual(t, "objects while it is under way", len(w.stored(t)), before+1)
				io.WriteString(sizes, "8")
				parts.Close()
				form.Close()
				r := <-sent
				if c.status == 202 {
					id := testkit.DecodeReply[receipt](t, r.WantStatus(t, 202)).FileID
					assertEqual(t, "content",
						w.Do(t, "GET", filesPath+"/"+id+"/content", "").WantStatus(t,
							200).Body == string(picture), true)
					return
				}
				r.WantError(t, 400, "VALIDATION_FAILED", "longer than 30m")
				assertEqual(t, "objects", len(w.stored(t)), before)
			})
		}
		t.Run("too late while the file itself comes", func(t *testing.T) {
			before, jobs := len(w.stored(t)), w.jobs(t)
			pause := func() {
				testkit.WaitUntil(t, "the file to be written", func() bool {
					return slices.ContainsFunc(files(t, filepath.Join(w.dir, ".temp")),
						func(name string) bool {
							return filepath.Ext(name) == ""
						})
				})
				w.clock.Advance(30 * time.Minute)
			}
			req, _ := http.NewRequest("POST", w.URL+filesPath,
				&pausingReader{remaining: pngOf(t, 9, 9), pause: pause})
			req.ContentLength = -1
			req.Header.Set("Content-Type", "image/png")
			w.Send(t, req).WantError(t, 400, "VALIDATION_FAILED", "longer than 30m")
			assertEqual(t, "objects", len(w.stored(t)), before)
			assertEqual(t, "jobs", w.jobs(t), jobs)
		})
	})
}

// pausingReader is a body with a pause after its first byte.
type pausingReader struct {
	remaining []byte
	read      int
	pause     func()
}

func (p *pausingReader) Read(b []byte) (int, error) {
	if p.read == len(p.remaining) {
		return 0, io.EOF
	}
	n := 1
	if p.read > 0 {
		p.pause()
		n = copy(b, p.remaining[p.read:])
	} else {
		b[0] = p.remaining[0]
	}
	p.read += n
	return n, nil
}

func TestSizes(t *testing.T) {
	t.Parallel()
	t.Run("G-IP-18 sizes are 1 to 20 different whole numbers from 1 to 8192", wantedSizes)
}

func wantedSizes(t *testing.T) {
	w := inMemory(t, config())
	many := strings.Repeat("1,", 20) + "2"
	for query, want := range map[string]bool{"?sizes=100,400": true, "?sizes=1": true,
		"?sizes=8192": true, "?sizes=%201%20,2": true, "?sizes=" + many: true,
		"?sizes=": false, "?sizes=0": false, "?sizes=8193": false, "?sizes=1,": false,
		"?sizes=-1": false, "?sizes=1.5": false, "?sizes=x": false,
		"?sizes=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21": false,
		"?sizes=1&sizes=2": false, "?sizes=%zz": false} {
		r := w.send(t, "image/png", pngOf(t, 2, 2), query)
		if want {
			r.WantStatus(t, 202)
		} else {
			r.WantError(t, 400, "VALIDATION_FAILED", "sizes")
		}
	}
	r := w.put(t, pngOf(t, 2, 2))
	for _, sizes := range []string{`[]`, `[0]`, `["1"]`, `1`, `[1.5]`, `"100"`} {
		w.Do(t, "POST", jobsPath, `{"type":"process_file","file_id":"`+r.FileID+`","sizes":`+sizes+
			`}`).WantError(t, 400, "VALIDATION_FAILED", "sizes")
	}
	w.create(t, "process_file", r.FileID, `"sizes":[7,7.0,3]`)
}

// Nothing is left of what is refused.
func TestRefusedUploads(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	large := string(bytes.Repeat([]byte{1}, maxUpload+1))
	t.Run("too large", func(t *testing.T) {
		w.send(t, "image/png", []byte(large), "").WantError(t, 413, "UPLOAD_TOO_LARGE",
			"images.max_upload")
		w.form(t, formPart{"file", "x.png", "", large}).WantError(t, 413, "UPLOAD_TOO_LARGE")
		w.form(t, formPart{"note", "", "", large + large}).WantError(t, 413, "UPLOAD_TOO_LARGE")
		w.send(t, "image/png", []byte(large[1:]), "").WantStatus(t, 202)
	})
	t.Run("too large, and nobody said so before", func(t *testing.T) {
		req, _ := http.NewRequest("POST", w.URL+filesPath,
			io.MultiReader(strings.NewReader(large), strings.NewReader(large)))
		req.Header.Set("Content-Type", "image/png")
		w.Send(t, req).WantError(t, 413, "UPLOAD_TOO_LARGE")
	})
	t.Run("broken forms", func(t *testing.T) {
		for _, name := range []string{"size", "other", "Sizes", "", strings.Repeat("x", 300)} {
			w.form(t, formPart{"file", "x.png", "", "1"},
				formPart{name, "", "", "8"}).WantError(t, 400, "VALIDATION_FAILED",
				name[:min(len(name), 255)], "file, sizes and callback_url")
		}
		w.form(t, formPart{"sizes", "", "", "8"}).WantError(t, 400, "VALIDATION_FAILED", "file")
		w.form(t, formPart{"file", "x.png", "", "1"},
			formPart{"file", "x.png", "", "1"}).WantError(t, 400, "VALIDATION_FAILED",
			"more than one")
		w.form(t, formPart{"file", "x.png", "", "1"}, formPart{"sizes", "", "", "no"}).WantError(t,
			400, "VALIDATION_FAILED", "sizes")
		w.form(t, slices.Repeat([]formPart{{"sizes", "", "", "8"}}, 17)...).WantError(t, 400,
			"VALIDATION_FAILED", "parts")
		for _, body := range []string{"", "--b",
			"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.png\"\r\n\r\nhalf"} {
			w.Do(t, "POST", filesPath, body, "Content-Type",
				"multipart/form-data; boundary=b").WantError(t, 400, "VALIDATION_FAILED")
		}
		w.Do(t, "POST", filesPath, "x", "Content-Type", "multipart/form-data").WantError(t, 400,
			"VALIDATION_FAILED")
	})
	t.Run("empty", func(t *testing.T) {
		w.Do(t, "POST", filesPath, "", "Content-Type", "image/png").WantError(t, 400,
			"VALIDATION_FAILED", "empty")
	})
	t.Run("headers that nobody can keep", func(t *testing.T) {
		w.send(t, "image/png", pngOf(t, 2, 2), "", "X-User-Id",
			strings.Repeat("u", 256)).WantError(t, 400, "VALIDATION_FAILED", "X-User-Id")
	})
	t.Run("a caller that goes away", func(t *testing.T) {
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		req, _ := http.NewRequestWithContext(ctx, "POST", w.URL+filesPath,
			&interruptedReader{abort: leave})
		req.Header.Set("Content-Type", "image/png")
		if _, err := w.Client.Do(req); err == nil {
			t.Error("answered")
		}
	})
	w.Do(t, "GET", jobsPath, "").WantStatus(t, 200)
	assertEqual(t, "jobs", w.jobs(t), 1)
	assertEqual(t, "objects", len(w.stored(t)), 1)
}

// interruptedReader is a body whose sender goes away after a part of it.
type interruptedReader struct {
	abort   func()
	started bool
}

func (l *interruptedReader) Read(p []byte) (int, error) {
	if l.started {
		l.abort()
		return 0, io.ErrUnexpectedEOF
	}
	l.started = true
	return len(p), nil
}

// failingStore is a store that fails: before it writes, once it has, or when it is read.
type failingStore struct {
	store.Store
	before, after, blind atomic.Bool
}

func (u *failingStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if u.blind.Load() {
		return &job.Error{Kind: job.Unavailable, Op: "test"}
	}
	return u.Store.View(ctx, fn)
}

func (u *failingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	unavailable := &job.Error{Kind: job.Unavailable, Op: "test"}
	if u.before.Load() {
		return unavailable
	}
	err := u.Store.Update(ctx, fn)
	if err == nil && u.after.Load() {
		return unavailable
	}
	return err
}

// A submit that fails leaves no object, and one whose answer was lost its job with its object.
func TestSubmitFails(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	u := &failingStore{Store: p.Store}
	p.Store = u
	w := newWorldAt(t, p, config())
	picture := pngOf(t, 2, 2)
	u.before.Store(true)
	r := w.send(t, "image/png", picture, "")
	r.WantError(t, 503, "SERVICE_UNAVAILABLE")
	assertEqual(t, "retry", r.Header.Get("Retry-After"), "1")
	u.before.Store(false)
	assertEqual(t, "objects", len(w.stored(t)), 0)
	u.after.Store(true)
	w.send(t, "image/png", picture, "", "Idempotency-Key", "k").WantError(t, 503,
		"SERVICE_UNAVAILABLE")
	u.after.Store(false)
	found := w.put(t, picture, "Idempotency-Key", "k")
	assertEqual(t, "jobs", w.jobs(t), 1)
	w.attempt(t, found.JobID)
	w.file(t, found.FileID, "ready")
}

func TestCreateJob(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, pngOf(t, 40, 20))
		t.Run("IP-030 a status that comes with a request is ignored", func(t *testing.T) {
			for _, status := range []string{"processing", "completed", "failed", "nonsense"} {
				v := w.create(t, "process_file", r.FileID,
					`"status":"`+status+`","attempt_count":7,"locked_at":"2026-01-01T00:00:00Z"`)
				assertEqual(t, "status", w.status(t, v.JobID, queued).AttemptCount, 0)
			}
		})
		t.Run("IP-030 no request changes a job", func(t *testing.T) {
			for _, method := range []string{"PUT", "PATCH", "DELETE", "POST"} {
				w.Do(t, method, jobsPath+"/"+r.JobID, `{"status":"completed"}`).WantError(t, 405,
					"METHOD_NOT_ALLOWED")
			}
			w.status(t, r.JobID, queued)
		})
		t.Run("IP-006 there are two types", func(t *testing.T) {
			for _, body := range []string{`{"type":"other","file_id":"` + r.FileID + `"}`,
				`{"file_id":"` + r.FileID + `"}`, `{"type":"process_file"}`,
				`{"type":1,"file_id":"x"}`, `[]`, `{`,
				`{"type":"delete_file","file_id":"` + r.FileID + `","sizes":[1]}`} {
				w.Do(t, "POST", jobsPath, body).WantError(t, 400, "VALIDATION_FAILED")
			}
			for _, id := range []string{"no", r.JobID} {
				w.Do(t, "POST", jobsPath, `{"type":"process_file","file_id":"`+id+`"}`,
					testkit.HeaderUndocumented, "1").WantError(t, 404, "FILE_NOT_FOUND")
			}
			w.Do(t, "POST", jobsPath, `{}`, "Content-Type", "text/plain").WantError(t, 415,
				"UNSUPPORTED_MEDIA_TYPE")
			w.Do(t, "POST", jobsPath, strings.Repeat(" ", 70<<10)).WantError(t, 413,
				"UPLOAD_TOO_LARGE")
			assertEqual(t, "type", w.create(t, "delete_file", r.FileID).JobType, "delete_file")
		})
	})
}

func TestLists(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		var want []string
		for i := range 5 {
			w.clock.Advance(1000)
			r := w.put(t, pngOf(t, 2+i, 2))
			want = append([]string{r.JobID}, want...)
		}
		w.attempt(t, want[1])
		type page struct {
			Items []jobView `json:"items"`
			Next  *string   `json:"next_cursor"`
			More  bool      `json:"has_more"`
		}
		list := func(query string) page {
			return testkit.DecodeReply[page](t,
				w.Do(t, "GET", jobsPath+query, "").WantStatus(t, 200))
		}
		var got []string
		for query := "?limit=2"; ; {
			p := list(query)
			for _, v := range p.Items {
				got = append(got, v.JobID)
			}
			assertEqual(t, "more", p.More, p.Next != nil)
			if p.Next == nil {
				break
			}
			query = "?limit=2&cursor=" + *p.Next
		}
		assertEqual(t, "newest first, a page at a time", strings.Join(got, " "),
			strings.Join(want, " "))
		assertEqual(t, "completed", len(list("?status=completed").Items), 1)
		assertEqual(t, "queued", len(list("?status=queued&type=process_file").Items), 4)
		assertEqual(t, "deletions", len(list("?type=delete_file").Items), 0)
		for _, query := range []string{"?status=READY", "?type=x", "?limit=0", "?limit=101",
			"?limit=x", "?cursor=x", "?cursor=", "?limit=1&limit=2"} {
			w.Do(t, "GET", jobsPath+query, "").WantError(t, 400, "VALIDATION_FAILED")
		}
	})
}

// What is asked of files that are not there, and of paths.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	r := w.put(t, pngOf(t, 2, 2))
	for _, id := range []string{r.JobID, "x", "%2e%2e"} {
		for _, path := range []string{"", "/content", "/variants/16"} {
			w.Do(t, "GET", filesPath+"/"+id+path, "").WantError(t, 404, "FILE_NOT_FOUND")
		}
		w.Do(t, "DELETE", filesPath+"/"+id, "").WantError(t, 404, "FILE_NOT_FOUND")
	}
	for size, why := range map[string]string{"16": "still being made", "17": "no variant",
		"016": "no variant", "0": "no variant", "x": "no variant",
		"99999999999999999999": "no variant"} {
		w.Do(t, "GET", filesPath+"/"+r.FileID+"/variants/"+size, "").WantError(t, 404,
			"VARIANT_NOT_FOUND", why)
	}
	w.Do(t, "GET", "/images/v1/nothing", "").WantError(t, 404, "NOT_FOUND")
	if _, err := w.engine.Get(context.Background(),
		job.ID{JobType: images.Purges, Key: r.JobID}); !job.IsKind(err, job.NotFound) {
		t.Errorf("a purge without a CDN: %v", err)
	}
}
