package client_test

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/images"

	"github.com/millrace/millrace/client"
)

// redPNG is a red picture.
func redPNG(width, height int) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		m.SetNRGBA(i%width, i/width, color.NRGBA{R: 255, A: 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err) // a buffer takes it
	}
	return b.Bytes()
}

func mustUpload(tb testing.TB, m *client.Images, up client.ImageUpload) client.ImageReceipt {
	tb.Helper()
	receipt, err := m.Upload(testContext(tb), up)
	must(tb, err)
	return receipt
}

func mustRead(tb testing.TB, body io.ReadCloser, err error) []byte {
	tb.Helper()
	must(tb, err)
	defer body.Close()
	text, err := io.ReadAll(body)
	must(tb, err)
	return text
}

// A picture from its upload to its deletion, through every call.
func TestImages(t *testing.T) {
	t.Parallel()
	m, ctx, original := mustImages(t, client.Config{}, nil), testContext(t), redPNG(80, 40)
	up := func() client.ImageUpload {
		return client.ImageUpload{Body: bytes.NewReader(original), Name: "a.PNG", UserID: "u 1",
			IdempotencyKey: "k"}
	}
	receipt := mustUpload(t, m, up())
	file, err := m.Wait(ctx, receipt.FileID)
	must(t, err)
	if file.Status != client.ImageFileReady || file.Type != "image/png" ||
		file.Bytes != int64(len(original)) || file.Width != 80 || file.Height != 40 ||
		file.JobID != receipt.JobID || len(file.Variants) != 2 {
		t.Errorf("the file is %+v", file)
	}
	t.Run("G-IP-18 variants are downloaded as they are described", func(t *testing.T) {
		for _, v := range file.Variants {
			body, err := m.Variant(ctx, file.ID, v.Size)
			text := mustRead(t, body, err)
			made, err := png.Decode(bytes.NewReader(text))
			must(t, err)
			if r, g, b, a := made.At(3, 3).RGBA(); int64(len(text)) != v.Bytes ||
				made.Bounds().Dx() != v.Width || v.Width != v.Size || v.Height != v.Size/2 ||
				r>>8 != 255 || g+b > 0 || a>>8 != 255 {
				t.Errorf("%+v has %d bytes, bounds %v and the colour %d %d %d", v, len(text),
					made.Bounds(), r, g, b)
			}
		}
		body, err := m.Content(ctx, file.ID)
		if text := mustRead(t, body, err); !bytes.Equal(text, original) {
			t.Errorf("the content has %d bytes of %d", len(text), len(original))
		}
		_, err = m.Variant(ctx, file.ID, 5)
		wantCode(t, err, client.ErrNotFound, client.ImageCodeVariantNotFound)
	})
	t.Run("the same key is the same file", func(t *testing.T) {
		repeated := mustUpload(t, m, up())
		if repeated.FileID != receipt.FileID || repeated.JobID != receipt.JobID ||
			repeated.Status != client.ImageJobCompleted || repeated.IdempotencyKey != "k" {
			t.Errorf("got %+v, first %+v", repeated, receipt)
		}
	})
	t.Run("IP-027 IP-028 another job makes more variants", func(t *testing.T) {
		j, err := m.SubmitJob(ctx, client.ImageJobSpec{Type: client.ImageJobTypeProcess,
			FileID: file.ID, Sizes: []int{24}})
		must(t, err)
		if j, err = m.WaitJob(ctx, j.ID); err != nil || j.Status != client.ImageJobCompleted ||
			j.Type != client.ImageJobTypeProcess || j.UserID != "u 1" ||
			j.Attempts != 1 || j.MaxAttempts != 3 || j.LastError != "" || j.FileID != file.ID ||
			j.CreatedAt.IsZero() || j.LockedAt != nil {
			t.Errorf("the job is %+v, %v", j, err)
		}
		more, err := m.File(ctx, file.ID)
		if err != nil || len(more.Variants) != 3 || more.Variants[1].Size != 24 ||
			more.JobID != j.ID {
			t.Errorf("the file is %+v, %v", more, err)
		}
		if status, err := m.RepublishMessage(ctx, j.ID); err != nil ||
			status != client.ImageJobCompleted {
			t.Errorf("a message of a job that is done: %v, %v", status, err)
		}
	})
	t.Run("IP-029 it is deleted by a job, and is gone at once", func(t *testing.T) {
		id, err := m.Delete(ctx, file.ID)
		must(t, err)
		if repeated, err := m.Delete(ctx, file.ID); err != nil || repeated != id {
			t.Errorf("deleted again by %s, %v", repeated, err)
		}
		if j, err := m.WaitJob(ctx, id); err != nil || j.Type != client.ImageJobTypeDelete ||
			j.Status != client.ImageJobCompleted {
			t.Errorf("the job is %+v, %v", j, err)
		}
		if gone, err := m.Wait(ctx, file.ID); err != nil ||
			gone.Status != client.ImageFileDeleted || len(gone.Variants) > 0 {
			t.Errorf("the file is %+v, %v", gone, err)
		}
		_, err = m.Content(ctx, file.ID)
		wantCode(t, err, client.ErrNotFound, client.ImageCodeFileDeleted)
		_, err = m.SubmitJob(ctx, client.ImageJobSpec{Type: client.ImageJobTypeProcess,
			FileID: file.ID})
		wantCode(t, err, client.ErrNotFound, client.ImageCodeFileDeleted)
	})
}

// What cannot be a picture fails for good; lists have it page by page.
func TestImagesDeadLetters(t *testing.T) {
	t.Parallel()
	m, ctx := mustImages(t, client.Config{}, nil), testContext(t)
	var ids []string
	for range 3 {
		bad := mustUpload(t, m, client.ImageUpload{Body: strings.NewReader("no picture"),
			Type: "image/jpeg", Sizes: []int{10, 20}})
		if file, err := m.Wait(ctx, bad.FileID); err != nil ||
			file.Status != client.ImageFileFailed || file.Width != 0 {
			t.Errorf("the file is %+v, %v", file, err)
		}
		ids = append(ids, bad.JobID)
	}
	slices.Reverse(ids)
	t.Run("IP-056 G-IP-20 dead letters say why, the newest first", func(t *testing.T) {
		var listed []string
		for _, l := range mustCollect(t, m.DeadLetters(ctx, 2)) {
			listed = append(listed, l.JobID)
			if l.ErrorType != "decode_error" || l.Error == "" || l.Attempts != 1 ||
				l.Type != client.ImageJobTypeProcess || l.FileID == "" || l.FailedAt.IsZero() {
				t.Errorf("the dead letter is %+v", l)
			}
		}
		if !slices.Equal(listed, ids) {
			t.Errorf("listed %v, want %v", listed, ids)
		}
		var jobs []string
		for _, j := range mustCollect(t,
			m.Jobs(ctx, client.ImageJobFilter{Status: client.ImageJobFailed,
				Type:     client.ImageJobTypeProcess,
				PageSize: 1})) {
			jobs = append(jobs, j.ID)
		}
		if !slices.Equal(jobs, ids) || len(mustCollect(t,
			m.Jobs(ctx, client.ImageJobFilter{Type: client.ImageJobTypeDelete}))) > 0 {
			t.Errorf("jobs %v, want %v", jobs, ids)
		}
	})
	t.Run("G-IP-08 a replay is a new job", func(t *testing.T) {
		repeated, err := m.Replay(ctx, ids[0])
		must(t, err)
		if repeated, err = m.WaitJob(ctx, repeated.ID); err != nil ||
			slices.Contains(ids, repeated.ID) || repeated.Status != client.ImageJobFailed ||
			repeated.LastErrorType != "decode_error" {
			t.Errorf("the job is %+v, %v", repeated, err)
		}
		good := mustUpload(t, m, client.ImageUpload{Body: bytes.NewReader(redPNG(4, 4)),
			Type: "image/png"})
		_, err = m.WaitJob(ctx, good.JobID)
		must(t, err)
		_, err = m.Replay(ctx, good.JobID)
		wantCode(t, err, client.ErrConflict, client.ImageCodeNotReplayable)
	})
	t.Run("G-IP-17 G-IP-19 refusals have their codes", func(t *testing.T) {
		for _, c := range []struct {
			up   client.ImageUpload
			code string
		}{
			{client.ImageUpload{Body: strings.NewReader("<svg/>"), Name: "a.svg"},
				client.ImageCodeUnsupportedImageType},
			{client.ImageUpload{Body: strings.NewReader("x"), Type: "image/png", Sizes: []int{0}},
				client.ImageCodeValidationFailed},
			{client.ImageUpload{Body: bytes.NewReader(make([]byte, 1<<20+1)), Type: "image/png"},
				client.ImageCodeUploadTooLarge},
			{client.ImageUpload{Body: io.LimitReader(endlessReader{}, 1<<20+1), Type: "image/png"},
				client.ImageCodeUploadTooLarge},
		} {
			_, err := m.Upload(ctx, c.up)
			wantCode(t, err, client.ErrInvalid, c.code)
		}
		for _, up := range []client.ImageUpload{{Type: "image/png"},
			{Body: strings.NewReader("x"), UserID: " u"}} {
			if _, err := m.Upload(ctx, up); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		}
		_, err := m.File(ctx, "none")
		wantCode(t, err, client.ErrNotFound, client.ImageCodeFileNotFound)
		_, err = m.Job(ctx, "none")
		wantCode(t, err, client.ErrNotFound, client.ImageCodeJobNotFound)
		if _, err := m.File(ctx, ""); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

// endlessReader are zeros without end.
type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) { return len(b), nil }

// An upload whose answers are lost is one file nevertheless, sent whole each time; what cannot be
// read again is sent once.
func TestImagesUploadRepeated(t *testing.T) {
	t.Parallel()
	var lost atomic.Int32
	lossy := transportFunc(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && r.Method == http.MethodPost && lost.Add(-1) >= 0 {
			resp.Body.Close()
			return nil, &net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}
		}
		return resp, err
	})
	m := mustImages(t, client.Config{HTTPClient: &http.Client{Transport: lossy},
		Retry: client.Retry{BaseDelay: time.Millisecond}},
		func(c *images.Config) { c.NoLocalWorkers = true })
	original := redPNG(300, 300)
	body := bytes.NewReader(append([]byte("passed over"), original...))
	_, err := body.Seek(11, io.SeekStart)
	must(t, err)
	lost.Store(3)
	receipt := mustUpload(t, m, client.ImageUpload{Body: body, Type: "image/png"})
	opened, err := m.Content(testContext(t), receipt.FileID)
	if text := mustRead(t, opened, err); !bytes.Equal(text, original) || lost.Load() != -1 {
		t.Errorf("%d bytes of %d are stored, %d answers were to be lost still", len(text),
			len(original), lost.Load())
	}
	lost.Store(1)
	receipt, err = m.Upload(testContext(t),
		client.ImageUpload{Body: io.MultiReader(bytes.NewReader(original)), Type: "image/png"})
	var fail *client.Error
	if !errors.As(err, &fail) || !fail.Uncertain || receipt.IdempotencyKey == "" ||
		lost.Load() != 0 {
		t.Errorf("got %v with the key %q", err, receipt.IdempotencyKey)
	}
	if jobs := mustCollect(t, m.Jobs(testContext(t), client.ImageJobFilter{})); len(jobs) != 2 {
		t.Errorf("there are %d jobs", len(jobs))
	}
}

// The request timeout is for an upload that makes no progress; one that goes on may take longer.
func TestImagesUploadStall(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if silent.Load() {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"file_id":"f","job_id":"j","status":"queued"}`)
	}))
	t.Cleanup(s.Close)
	const limit = 2 * time.Second
	m := mustClient(t, client.Config{BaseURL: s.URL, RequestTimeout: limit}).Images()
	started, piece := time.Now(), time.NewTicker(limit/8)
	defer piece.Stop()
	mustUpload(t, m, client.ImageUpload{Type: "image/png",
		Body: readerFunc(func(b []byte) (int, error) {
			if time.Since(started) > 2*limit {
				return 0, io.EOF
			}
			<-piece.C
			return copy(b, "x"), nil
		})})
	silent.Store(true)
	_, err := m.Upload(testContext(t),
		client.ImageUpload{Body: io.MultiReader(strings.NewReader("x")), Type: "image/png"})
	if !errors.Is(err, client.ErrRetryable) {
		t.Errorf("got %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
