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
		t.Run("IP-001 IP-027 an upload is a job that is queued, and found by its id", func(t *testing.T) {
			equal(t, "status", r.Status, "queued")
			equal(t, "file", w.status(t, r.JobID, queued).FileID, r.FileID)
			w.Do(t, "GET", jobsPath+"/"+r.FileID, "").Is(t, 404, "JOB_NOT_FOUND")
			w.Do(t, "GET", jobsPath+"/no-uuid", "").Is(t, 404, "JOB_NOT_FOUND")
		})
		t.Run("IP-007 IP-028 IP-006 all members of a job are read", func(t *testing.T) {
			v := w.job(t, r.JobID)
			equal(t, "type", v.JobType, "process_file")
			equal(t, "attempts", v.AttemptCount, 0)
			equal(t, "most attempts", v.MaxAttempts, 3)
			equal(t, "user", text(v.UserID), "u-7")
			equal(t, "error", text(v.LastError)+text(v.LastErrorType), "nullnull")
			equal(t, "not locked", v.LockedAt == nil, true)
			if !v.CreatedAt.Equal(testkit.Start) || v.UpdatedAt.Before(v.CreatedAt) {
				t.Errorf("created %s, updated %s", v.CreatedAt, v.UpdatedAt)
			}
		})
		t.Run("the original is kept byte for byte, under a key made of the id", func(t *testing.T) {
			equal(t, "objects", strings.Join(w.stored(t), " "), "images/"+r.FileID+"/original")
			got := w.Do(t, "GET", filesPath+"/"+r.FileID+"/content", "").Want(t, 200)
			equal(t, "content", got.Body == string(picture), true)
			equal(t, "type", got.Header.Get("Content-Type"), "image/jpeg")
			equal(t, "sniffing", got.Header.Get("X-Content-Type-Options"), "nosniff")
			equal(t, "policy", got.Header.Get("Content-Security-Policy"), "default-src 'none'; sandbox")
			v := w.file(t, r.FileID, "processing")
			equal(t, "size", v.Size, int64(len(picture)))
			equal(t, "dimensions", v.Width == nil && v.Height == nil && len(v.Variants) == 0, true)
			equal(t, "job", v.JobID, r.JobID)
		})
		t.Run("who has the content already is not sent it", func(t *testing.T) {
			path := filesPath + "/" + r.FileID + "/content"
			tag := w.Do(t, "GET", path, "").Header.Get("ETag")
			w.Do(t, "GET", path, "", "If-None-Match", `"x", `+tag).Want(t, 304).Empty(t)
			w.Do(t, "GET", path, "", "If-None-Match", `"x"`).Want(t, 200)
		})
		t.Run("a form", func(t *testing.T) {
			f := testkit.Read[receipt](t, w.form(t, part{"file", "a b.png", "", string(pngOf(t, 9, 9))}, part{"note", "", "", "n"}, part{"sizes", "", "", "8, 4,8"}).Want(t, 202))
			equal(t, "type", w.file(t, f.FileID, "processing").MIME, "image/png")
			equal(t, "sizes", string(w.state(t, f.JobID).Definition), `{"mime_type":"image/png","size_bytes":`+encoded(w.file(t, f.FileID, "processing").Size)+`,"sizes":[4,8]}`)
		})
		t.Run("Idempotency-Key: the first upload is answered", func(t *testing.T) {
			jobs, objects := w.jobs(t), len(w.stored(t))
			answers := testkit.Together(8, func(int) receipt { return w.put(t, picture, "Idempotency-Key", "k") })
			for _, a := range append(answers, w.put(t, pngOf(t, 3, 3), "Idempotency-Key", "k")) {
				equal(t, "job", a.JobID, answers[0].JobID)
				equal(t, "file", a.FileID, answers[0].FileID)
			}
			equal(t, "jobs", w.jobs(t)-jobs, 1)
			equal(t, "objects", len(w.stored(t))-objects, 1)
			w.send(t, "image/jpeg", picture, "", "Idempotency-Key", strings.Repeat("k", 256)).Is(t, 400, "VALIDATION_FAILED", "Idempotency-Key")
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
		{"image/jpeg", "x.txt", "image/jpeg"}, {"image/png; charset=x", "", "image/png"}, {"IMAGE/GIF", "", "image/gif"}, {"image/webp", "", "image/webp"},
		{"image/jpg", "", "image/jpeg"}, {"", "x.JPEG", "image/jpeg"}, {"application/octet-stream", "x.webp", "image/webp"},
		{"image/svg+xml", "x.png", ""}, {"image/tiff", "", ""}, {"application/pdf", "x.jpg", ""}, {"", "x.svg", ""}, {"", "", ""}, {"text/html", "x.jpg", ""}, {"/", "x.jpg", ""},
	} {
		r := w.form(t, part{"file", c.file, c.mime, "anything"})
		if c.want == "" {
			r.Is(t, 415, "UNSUPPORTED_IMAGE_TYPE")
			continue
		}
		equal(t, c.mime+" "+c.file, w.file(t, testkit.Read[receipt](t, r.Want(t, 202)).FileID, "processing").MIME, c.want)
	}
	before := len(w.stored(t))
	w.send(t, "application/pdf", []byte("%PDF"), "").Is(t, 415, "UNSUPPORTED_IMAGE_TYPE")
	w.send(t, "application/x-www-form-urlencoded", []byte("a=b"), "").Is(t, 415, "UNSUPPORTED_IMAGE_TYPE")
	equal(t, "objects of what was refused", len(w.stored(t))-before, 0)
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
		w.send(t, "image/png", zipped.Bytes(), "", "Content-Encoding", encoding).Is(t, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Encoding")
		w.Do(t, "POST", jobsPath, `{}`, "Content-Encoding", encoding).Is(t, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Encoding")
	}
	const boundary = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.png\"\r\nContent-Encoding: gzip\r\n\r\n"
	w.Do(t, "POST", filesPath, boundary+zipped.String()+"\r\n--b--\r\n", "Content-Type", "multipart/form-data; boundary=b").Is(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	equal(t, "jobs", w.jobs(t), 0)
	equal(t, "objects", len(w.stored(t)), 0)
	w.put(t, pngOf(t, 9, 9), "Content-Encoding", "identity")
}

// An upload is over, one way or the other, long before its original could be taken for one that was left behind.
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
					req.ContentLength = -1 // else it would be read before it is sent, to be held against the document
					req.Header.Set(testkit.BeyondDocument, "1")
					req.Header.Set("Content-Type", parts.FormDataContentType())
					sent <- w.Send(t, req)
				}()
				file, _ := parts.CreateFormFile("file", "x.png")
				file.Write(picture)
				sizes, _ := parts.CreateFormField("sizes") // what follows the file tells that it has ended
				testkit.Until(t, "the file to be stored", func() bool { return len(w.stored(t)) == before+1 })
				w.clock.Advance(c.pause)
				if err := w.room.Sweeper()(context.Background()); err != nil {
					t.Fatal(err)
				}
				equal(t, "objects while it is under way", len(w.stored(t)), before+1)
				io.WriteString(sizes, "8")
				parts.Close()
				form.Close()
				r := <-sent
				if c.status == 202 {
					id := testkit.Read[receipt](t, r.Want(t, 202)).FileID
					equal(t, "content", w.Do(t, "GET", filesPath+"/"+id+"/content", "").Want(t, 200).Body == string(picture), true)
					return
				}
				r.Is(t, 400, "VALIDATION_FAILED", "longer than 30m")
				equal(t, "objects", len(w.stored(t)), before)
			})
		}
		t.Run("too late while the file itself comes", func(t *testing.T) {
			before, jobs := len(w.stored(t)), w.jobs(t)
			pause := func() {
				testkit.Until(t, "the file to be written", func() bool {
					return slices.ContainsFunc(files(t, filepath.Join(w.dir, ".temp")), func(name string) bool { return filepath.Ext(name) == "" })
				})
				w.clock.Advance(30 * time.Minute)
			}
			req, _ := http.NewRequest("POST", w.URL+filesPath, &pausing{rest: pngOf(t, 9, 9), pause: pause})
			req.ContentLength = -1
			req.Header.Set("Content-Type", "image/png")
			w.Send(t, req).Is(t, 400, "VALIDATION_FAILED", "longer than 30m")
			equal(t, "objects", len(w.stored(t)), before)
			equal(t, "jobs", w.jobs(t), jobs)
		})
	})
}

// pausing is a body with a pause after its first byte.
type pausing struct {
	rest  []byte
	read  int
	pause func()
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.read == len(p.rest) {
		return 0, io.EOF
	}
	n := 1
	if p.read > 0 {
		p.pause()
		n = copy(b, p.rest[p.read:])
	} else {
		b[0] = p.rest[0]
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
	for query, want := range map[string]bool{"?sizes=100,400": true, "?sizes=1": true, "?sizes=8192": true, "?sizes=%201%20,2": true, "?sizes=" + many: true,
		"?sizes=": false, "?sizes=0": false, "?sizes=8193": false, "?sizes=1,": false, "?sizes=-1": false, "?sizes=1.5": false, "?sizes=x": false,
		"?sizes=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21": false, "?sizes=1&sizes=2": false, "?sizes=%zz": false} {
		r := w.send(t, "image/png", pngOf(t, 2, 2), query)
		if want {
			r.Want(t, 202)
		} else {
			r.Is(t, 400, "VALIDATION_FAILED", "sizes")
		}
	}
	r := w.put(t, pngOf(t, 2, 2))
	for _, sizes := range []string{`[]`, `[0]`, `["1"]`, `1`, `[1.5]`, `"100"`} {
		w.Do(t, "POST", jobsPath, `{"type":"process_file","file_id":"`+r.FileID+`","sizes":`+sizes+`}`).Is(t, 400, "VALIDATION_FAILED", "sizes")
	}
	w.create(t, "process_file", r.FileID, `"sizes":[7,7.0,3]`)
}

// Nothing is left of what is refused.
func TestRefusedUploads(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	large := string(bytes.Repeat([]byte{1}, maxUpload+1))
	t.Run("too large", func(t *testing.T) {
		w.send(t, "image/png", []byte(large), "").Is(t, 413, "UPLOAD_TOO_LARGE", "images.max_upload")
		w.form(t, part{"file", "x.png", "", large}).Is(t, 413, "UPLOAD_TOO_LARGE")
		w.form(t, part{"note", "", "", large + large}).Is(t, 413, "UPLOAD_TOO_LARGE")
		w.send(t, "image/png", []byte(large[1:]), "").Want(t, 202)
	})
	t.Run("too large, and nobody said so before", func(t *testing.T) {
		req, _ := http.NewRequest("POST", w.URL+filesPath, io.MultiReader(strings.NewReader(large), strings.NewReader(large)))
		req.Header.Set("Content-Type", "image/png")
		w.Send(t, req).Is(t, 413, "UPLOAD_TOO_LARGE")
	})
	t.Run("broken forms", func(t *testing.T) {
		w.form(t, part{"other", "", "", "x"}).Is(t, 400, "VALIDATION_FAILED", "file")
		w.form(t, part{"file", "x.png", "", "1"}, part{"file", "x.png", "", "1"}).Is(t, 400, "VALIDATION_FAILED", "more than one")
		w.form(t, part{"file", "x.png", "", "1"}, part{"sizes", "", "", "no"}).Is(t, 400, "VALIDATION_FAILED", "sizes")
		w.form(t, make([]part, 17)...).Is(t, 400, "VALIDATION_FAILED", "parts")
		for _, body := range []string{"", "--b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.png\"\r\n\r\nhalf"} {
			w.Do(t, "POST", filesPath, body, "Content-Type", "multipart/form-data; boundary=b").Is(t, 400, "VALIDATION_FAILED")
		}
		w.Do(t, "POST", filesPath, "x", "Content-Type", "multipart/form-data").Is(t, 400, "VALIDATION_FAILED")
	})
	t.Run("empty", func(t *testing.T) {
		w.Do(t, "POST", filesPath, "", "Content-Type", "image/png").Is(t, 400, "VALIDATION_FAILED", "empty")
	})
	t.Run("headers that nobody can keep", func(t *testing.T) {
		w.send(t, "image/png", pngOf(t, 2, 2), "", "X-User-Id", strings.Repeat("u", 256)).Is(t, 400, "VALIDATION_FAILED", "X-User-Id")
	})
	t.Run("a caller that goes away", func(t *testing.T) {
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		req, _ := http.NewRequestWithContext(ctx, "POST", w.URL+filesPath, &leaving{leave: leave})
		req.Header.Set("Content-Type", "image/png")
		if _, err := w.Client.Do(req); err == nil {
			t.Error("answered")
		}
	})
	w.Do(t, "GET", jobsPath, "").Want(t, 200)
	equal(t, "jobs", w.jobs(t), 1)
	equal(t, "objects", len(w.stored(t)), 1)
}

// leaving is a body whose sender goes away after a part of it.
type leaving struct {
	leave func()
	begun bool
}

func (l *leaving) Read(p []byte) (int, error) {
	if l.begun {
		l.leave()
		return 0, io.ErrUnexpectedEOF
	}
	l.begun = true
	return len(p), nil
}

// unwilling is a store that fails: before it writes, once it has, or when it is read.
type unwilling struct {
	store.Store
	before, after, blind atomic.Bool
}

func (u *unwilling) View(ctx context.Context, fn func(store.Reader) error) error {
	if u.blind.Load() {
		return &job.Error{Kind: job.Unavailable, Op: "test"}
	}
	return u.Store.View(ctx, fn)
}

func (u *unwilling) Update(ctx context.Context, fn func(store.Tx) error) error {
	away := &job.Error{Kind: job.Unavailable, Op: "test"}
	if u.before.Load() {
		return away
	}
	err := u.Store.Update(ctx, fn)
	if err == nil && u.after.Load() {
		return away
	}
	return err
}

// A submit that fails leaves no object, and one whose answer was lost its job with its object.
func TestSubmitFails(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	u := &unwilling{Store: p.Store}
	p.Store = u
	w := in(t, p, config())
	picture := pngOf(t, 2, 2)
	u.before.Store(true)
	r := w.send(t, "image/png", picture, "")
	r.Is(t, 503, "SERVICE_UNAVAILABLE")
	equal(t, "retry", r.Header.Get("Retry-After"), "1")
	u.before.Store(false)
	equal(t, "objects", len(w.stored(t)), 0)
	u.after.Store(true)
	w.send(t, "image/png", picture, "", "Idempotency-Key", "k").Is(t, 503, "SERVICE_UNAVAILABLE")
	u.after.Store(false)
	found := w.put(t, picture, "Idempotency-Key", "k")
	equal(t, "jobs", w.jobs(t), 1)
	w.attempt(t, found.JobID)
	w.file(t, found.FileID, "ready")
}

func TestCreateJob(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, pngOf(t, 40, 20))
		t.Run("IP-030 a status that comes with a request is ignored", func(t *testing.T) {
			for _, status := range []string{"processing", "completed", "failed", "nonsense"} {
				v := w.create(t, "process_file", r.FileID, `"status":"`+status+`","attempt_count":7,"locked_at":"2026-01-01T00:00:00Z"`)
				equal(t, "status", w.status(t, v.JobID, queued).AttemptCount, 0)
			}
		})
		t.Run("IP-030 no request changes a job", func(t *testing.T) {
			for _, method := range []string{"PUT", "PATCH", "DELETE", "POST"} {
				w.Do(t, method, jobsPath+"/"+r.JobID, `{"status":"completed"}`).Is(t, 405, "METHOD_NOT_ALLOWED")
			}
			w.status(t, r.JobID, queued)
		})
		t.Run("IP-006 there are two types", func(t *testing.T) {
			for _, body := range []string{`{"type":"other","file_id":"` + r.FileID + `"}`, `{"file_id":"` + r.FileID + `"}`, `{"type":"process_file"}`,
				`{"type":1,"file_id":"x"}`, `[]`, `{`, `{"type":"delete_file","file_id":"` + r.FileID + `","sizes":[1]}`} {
				w.Do(t, "POST", jobsPath, body).Is(t, 400, "VALIDATION_FAILED")
			}
			for _, id := range []string{"no", r.JobID} {
				w.Do(t, "POST", jobsPath, `{"type":"process_file","file_id":"`+id+`"}`, testkit.BeyondDocument, "1").Is(t, 404, "FILE_NOT_FOUND")
			}
			w.Do(t, "POST", jobsPath, `{}`, "Content-Type", "text/plain").Is(t, 415, "UNSUPPORTED_MEDIA_TYPE")
			w.Do(t, "POST", jobsPath, strings.Repeat(" ", 70<<10)).Is(t, 413, "UPLOAD_TOO_LARGE")
			equal(t, "type", w.create(t, "delete_file", r.FileID).JobType, "delete_file")
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
		list := func(query string) page { return testkit.Read[page](t, w.Do(t, "GET", jobsPath+query, "").Want(t, 200)) }
		var got []string
		for query := "?limit=2"; ; {
			p := list(query)
			for _, v := range p.Items {
				got = append(got, v.JobID)
			}
			equal(t, "more", p.More, p.Next != nil)
			if p.Next == nil {
				break
			}
			query = "?limit=2&cursor=" + *p.Next
		}
		equal(t, "newest first, a page at a time", strings.Join(got, " "), strings.Join(want, " "))
		equal(t, "completed", len(list("?status=completed").Items), 1)
		equal(t, "queued", len(list("?status=queued&type=process_file").Items), 4)
		equal(t, "deletions", len(list("?type=delete_file").Items), 0)
		for _, query := range []string{"?status=READY", "?type=x", "?limit=0", "?limit=101", "?limit=x", "?cursor=x", "?cursor=", "?limit=1&limit=2"} {
			w.Do(t, "GET", jobsPath+query, "").Is(t, 400, "VALIDATION_FAILED")
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
			w.Do(t, "GET", filesPath+"/"+id+path, "").Is(t, 404, "FILE_NOT_FOUND")
		}
		w.Do(t, "DELETE", filesPath+"/"+id, "").Is(t, 404, "FILE_NOT_FOUND")
	}
	for size, why := range map[string]string{"16": "still being made", "17": "no variant", "016": "no variant", "0": "no variant", "x": "no variant",
		"99999999999999999999": "no variant"} {
		w.Do(t, "GET", filesPath+"/"+r.FileID+"/variants/"+size, "").Is(t, 404, "VARIANT_NOT_FOUND", why)
	}
	w.Do(t, "GET", "/images/v1/nothing", "").Is(t, 404, "NOT_FOUND")
	if _, err := w.engine.Get(context.Background(), job.ID{Contract: images.Purges, Key: r.JobID}); !job.IsKind(err, job.NotFound) {
		t.Errorf("a purge without a CDN: %v", err)
	}
}
