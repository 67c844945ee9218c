package main

import (
	"bytes"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestImagesWork runs the example of the papers: a worker outside that makes the variants with vipsthumbnail.
func TestImagesWork(t *testing.T) {
	t.Parallel()
	for _, needed := range []string{"vipsthumbnail", "vipsheader", "jq"} {
		if _, err := exec.LookPath(needed); err != nil {
			if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
				t.Fatal(err)
			}
			t.Skipf("skipped: there is no %s", needed)
		}
	}
	script, err := filepath.Abs("../../docs/thumbs.sh")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "millrace")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "data")
	server, err := launch(binary, dir, nil, "--no-workers", "--set", "contracts=images", "--set", "images.sizes=100,8192", "--set", "log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	var good, bad imageJob
	imageCall(t, server.url, "POST", "/images/v1/files", largeJPEG(t), 202, &good)
	imageCall(t, server.url, "POST", "/images/v1/files", []byte("no picture"), 202, &bad)
	work := exec.Command(binary, "work", "--server", server.url, "--contract", "images", "--until-empty", "process_file", "--", script)
	work.Env = append(os.Environ(), "OBJECTS="+filepath.Join(dir, "objects", "millrace"))
	if out, err := work.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var j struct {
		Status string
		Error  string `json:"last_error"`
	}
	imageCall(t, server.url, "GET", "/images/v1/jobs/"+bad.JobID, nil, 200, &j)
	if j.Status != "failed" || !strings.Contains(j.Error, "not a picture") {
		t.Errorf("text: %+v", j)
	}
	imageCall(t, server.url, "GET", "/images/v1/jobs/"+good.JobID, nil, 200, &j)
	if j.Status != "completed" {
		t.Fatalf("a picture: %+v", j)
	}
	for size, want := range map[string][2]int{"100": {100, 83}, "8192": {6000, 5000}} {
		got, err := jpeg.Decode(bytes.NewReader(imageCall(t, server.url, "GET", "/images/v1/files/"+good.FileID+"/variants/"+size, nil, 200, nil)))
		if err != nil || got.Bounds().Dx() != want[0] || got.Bounds().Dy() != want[1] {
			t.Errorf("size %s: %v, %v", size, got.Bounds(), err)
		}
	}
	if err := server.terminate(); err != nil {
		t.Error(err)
	}
}
