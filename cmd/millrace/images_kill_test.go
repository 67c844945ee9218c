package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// imageJob is what is read of an image job.
type imageJob struct {
	FileID   string `json:"file_id"`
	JobID    string `json:"job_id"`
	Status   string
	Attempts int `json:"attempt_count"`
}

// TestImagesKill kills the real binary with SIGKILL while it processes a picture: after the lock
// time-out the job is finished by whoever is there then, and there are no half objects.
func TestImagesKill(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	dir := filepath.Join(t.TempDir(), "data")
	settings := []string{"--set", "contracts=images", "--set", "images.lock_timeout=5s", "--set",
		"images.sizes=50,1000", "--set", "log.level=warn"}
	server, err := launch(binary, dir, nil, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	picture := largeJPEG()
	var made imageJob
	imageCall(t, server.url, "POST", "/images/v1/files", picture, 202, &made)
	job := func(at string) (j imageJob) {
		imageCall(t, at, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &j)
		return j
	}
	pollUntil(t.Fatalf, "the job to be processed", func() bool {
		return job(server.url).Status == "processing"
	})
	server.kill()

	repeated, err := launch(binary, dir, nil, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(repeated.kill)
	if s := job(repeated.url).Status; s != "processing" {
		t.Fatalf("after the kill the job is %s: it was not killed while it was processed", s)
	}
	t.Run("IP-051 after the lock time-out the job is finished", func(t *testing.T) {
		pollUntil(t.Fatalf, "the job to be completed", func() bool {
			return job(repeated.url).Status == "completed"
		})
		if n := job(repeated.url).Attempts; n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
	})
	t.Run("IP-037 there are no half objects, and nothing beside them", func(t *testing.T) {
		var file struct {
			Variants []struct {
				URL           string
				Bytes         int
				Width, Height int
			}
		}
		imageCall(t, repeated.url, "GET", "/images/v1/files/"+made.FileID, nil, 200, &file)
		if len(file.Variants) != 2 {
			t.Fatalf("got %+v", file)
		}
		for _, v := range file.Variants {
			body := imageCall(t, repeated.url, "GET", v.URL, nil, 200, nil)
			got, err := jpeg.Decode(bytes.NewReader(body))
			if err != nil || len(body) != v.Bytes || got.Bounds().Dx() != v.Width ||
				got.Bounds().Dy() != v.Height {
				t.Errorf("%s: %d bytes, %v", v.URL, len(body), err)
			}
		}
		if got := imageCall(t, repeated.url, "GET", "/images/v1/files/"+made.FileID+"/content", nil,
			200, nil); !bytes.Equal(got, picture) {
			t.Error("the original is another")
		}
	})
	if err := repeated.terminate(); err != nil {
		t.Error(err)
	}
	var left []string
	for _, below := range []string{"objects/.temp", "objects/millrace", "work"} {
		err := filepath.WalkDir(filepath.Join(dir, below),
			func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".attrs") {
					left = append(left, filepath.Base(path))
				}
				return err
			})
		if err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(left); got != "[1000.jpg 50.jpg original]" {
		t.Errorf("there are %s", got)
	}
}

// largeJPEG takes a while to be processed. It is made once.
var largeJPEG = sync.OnceValue(func() []byte { return stripedJPEG(6000, 5000) })

// stripedJPEG makes a JPEG of an image that is computed while it is encoded: one of so many pixels
// in memory would stay in that of the race detector, which is several times as large.
func stripedJPEG(width, height int) []byte {
	var b bytes.Buffer
	_ = jpeg.Encode(&b, stripes{image.Rect(0, 0, width, height)}, nil) // a buffer takes everything
	return b.Bytes()
}

// stripes is an image of coloured columns on a black ground.
type stripes struct{ image.Rectangle }

func (stripes) ColorModel() color.Model { return color.RGBAModel }

func (s stripes) Bounds() image.Rectangle { return s.Rectangle }

func (stripes) At(x, y int) color.Color {
	if x%3 != 0 {
		return color.RGBA{}
	}
	return color.RGBA{uint8(x), uint8(y), uint8(x ^ y), 255}
}

// imageCall makes a request that must be answered with a status.
func imageCall(t *testing.T, at, method, path string, body []byte, want int, into any) []byte {
	t.Helper()
	req, err := http.NewRequest(method, at+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "image/jpeg")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		t.Fatalf("%s %s: %d %.300s, %v", method, path, answer.StatusCode, got, err)
	}
	if into != nil {
		if err := json.Unmarshal(got, into); err != nil {
			t.Fatal(err)
		}
	}
	return got
}
