package images_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/images/picture"
)

// claiming is a PNG whose header says how large it is.
func claiming(width, height uint32) []byte {
	header := []byte("IHDR")
	header = binary.BigEndian.AppendUint32(header, width)
	header = binary.BigEndian.AppendUint32(header, height)
	header = append(header, 8, 2, 0, 0, 0)
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	b = append(b, header...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(header))
	return append(b, "\x00\x00\x00\x00IDAT\x35\xaf\x06\x1e\x00\x00\x00\x00IEND\xaeB`\x82"...)
}

// frames is a GIF of many small frames.
func frames(n int) []byte {
	b := []byte("GIF89a\x10\x00\x10\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff")
	frame := []byte("\x2c\x00\x00\x00\x00\x10\x00\x10\x00\x00\x02\x0e\x8c\x8f\xa9\xcb\xed\x0f\xa3\x9c\xb4\xda\x8b\xb3\xde\xbc\x00")
	return append(append(b, bytes.Repeat(frame, n)...), ';')
}

// Whatever strangers upload ends as failed with its type; the server goes on, and nothing of it
// reaches a variant.
func TestHostile(t *testing.T) {
	t.Parallel()
	c := config()
	c.MaxUpload = 1 << 20
	w := inMemory(t, c)
	whole := jpegOf(t, 200, 200)
	huge := append([]byte(nil), whole...)
	at := bytes.Index(huge, []byte{0xff, 0xc0})
	copy(huge[at+5:], []byte{0xff, 0xff, 0xff, 0xff})
	for name, c := range map[string]struct {
		body []byte
		kind string
	}{
		"text":              {[]byte("I am no picture"), picture.DecodeError},
		"a truncated JPEG":  {whole[:len(whole)/2], picture.DecodeError},
		"a header alone":    {whole[:3], picture.DecodeError},
		"65535 × 65535":     {huge, picture.TooLarge},
		"a PNG bomb":        {claiming(100_000, 100_000), picture.TooLarge},
		"no such dimension": {claiming(0, 1), picture.DecodeError},
		"10,000 frames":     {frames(10_000), picture.TooLarge},
	} {
		t.Run("IP-053 "+name, func(t *testing.T) {
			r := w.send(t, "image/jpeg", c.body, "").WantStatus(t, 202)
			id := readReceipt(t, r)
			w.attempt(t, id.JobID)
			v := w.status(t, id.JobID, failed)
			assertEqual(t, "type", text(v.LastErrorType), c.kind)
			assertEqual(t, "attempts", v.AttemptCount, 1)
			assertEqual(t, "counted", metric(t, w.worker, "image_processing_errors_total",
				"error_type", c.kind) > 0, true)
			w.file(t, id.FileID, "failed")
		})
	}
	t.Run("G-IP-17 what hides behind a picture reaches no variant", func(t *testing.T) {
		secret := "<script>alert('hidden')</script>PK\x03\x04"
		r := w.put(t, append(append([]byte(nil), whole...), secret...))
		w.attempt(t, r.JobID)
		for _, v := range w.file(t, r.FileID, "ready").Variants {
			if got := w.Do(t, "GET", v.URL, "").WantStatus(t, 200); strings.Contains(got.Body,
				"script") || (strings.Contains(got.Body, "PK") &&
				strings.Contains(got.Body, "hidden")) {
				t.Errorf("variant %d carries it", v.Size)
			}
		}
	})
	t.Run("a picture that is another type than it says is what it is", func(t *testing.T) {
		r := readReceipt(t, w.send(t, "image/jpeg", pngOf(t, 20, 20), "").WantStatus(t, 202))
		w.attempt(t, r.JobID)
		f := w.file(t, r.FileID, "ready")
		assertEqual(t, "type", f.MIME, "image/png")
		assertEqual(t, "content", w.Do(t, "GET", filesPath+"/"+r.FileID+"/content",
			"").Header.Get("Content-Type"), "image/png")
	})
	t.Run("the server is untouched", func(t *testing.T) {
		r := w.put(t, whole)
		w.attempt(t, r.JobID)
		w.file(t, r.FileID, "ready")
		if err := w.engine.Ping(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestToken(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	for _, r := range []struct{ method, path string }{{"POST", filesPath}, {"GET", jobsPath},
		{"GET", deadLettersPath}, {"GET", "/images/v1/x"}} {
		w.Do(t, r.method, r.path, "").WantError(t, 401, "UNAUTHORIZED")
	}
	w.Do(t, "GET", jobsPath, "", "Authorization", "Bearer images-token-images-token").WantStatus(t,
		200)
}
