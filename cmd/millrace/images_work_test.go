package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"image/jpeg"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImagesWork runs the example of the papers: a worker outside that makes the variants with
// vipsthumbnail.
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
	binary := mustMillrace(t)
	dir := filepath.Join(t.TempDir(), "data")
	server, err := launch(binary, dir, nil, "--no-workers", "--set", "contracts=images", "--set",
		"images.sizes=100,8192", "--set", "images.backoff_base=1ms", "--set", "log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	work := func(objects string, args ...string) {
		t.Helper()
		c := boundedCommand(t, binary, append([]string{"work", "--server", server.url, "--contract",
			"images"}, args...)...)
		c.Env = append(os.Environ(), "OBJECTS="+objects)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	type jobStatus struct {
		Status string
		Error  string `json:"last_error"`
		Type   string `json:"last_error_type"`
	}
	state := func(jobID string) (j jobStatus) {
		t.Helper()
		imageCall(t, server.url, "GET", "/images/v1/jobs/"+jobID, nil, 200, &j)
		return j
	}
	upload := func(body []byte) (j imageJob) {
		t.Helper()
		imageCall(t, server.url, "POST", "/images/v1/files", body, 202, &j)
		return j
	}
	there := filepath.Join(dir, "objects", "millrace")
	good := upload(rotatedJPEG(stripedJPEG(1200, 1000)))
	work(t.TempDir(), "--max-jobs", "1", "process_file", "--", script)
	if j := state(good.JobID); j.Status != "failed_retryable" ||
		!strings.Contains(j.Error, "No such file") {
		t.Errorf("where the objects are unavailable: %+v", j)
	}
	pollUntil(t.Fatalf, "the picture", func() bool {
		work(there, "--until-empty", "process_file", "delete_file", "--", script)
		return state(good.JobID).Status != "failed_retryable"
	})
	if j := state(good.JobID); j.Status != "completed" {
		t.Fatalf("a picture: %+v", j)
	}
	var file struct{ Width, Height int }
	imageCall(t, server.url, "GET", "/images/v1/files/"+good.FileID, nil, 200, &file)
	if file.Width != 1000 || file.Height != 1200 {
		t.Errorf("upright it is %+v", file)
	}
	for size, want := range map[string][2]int{"100": {83, 100}, "8192": {1000, 1200}} {
		got, err := jpeg.Decode(bytes.NewReader(imageCall(t, server.url, "GET",
			"/images/v1/files/"+good.FileID+"/variants/"+size, nil, 200, nil)))
		if err != nil || got.Bounds().Dx() != want[0] || got.Bounds().Dy() != want[1] {
			t.Errorf("size %s: %v, %v", size, got.Bounds(), err)
		}
	}

	bad := upload([]byte("no picture"))
	var deletion imageJob
	imageCall(t, server.url, "DELETE", "/images/v1/files/"+good.FileID, nil, 202, &deletion)
	work(t.TempDir()+"/away", "--max-jobs", "1", "delete_file", "--", script)
	if j := state(deletion.JobID); j.Status != "failed_retryable" {
		t.Errorf("a deletion where the objects are unavailable: %+v", j)
	}
	pollUntil(t.Fatalf, "the deletion", func() bool {
		work(there, "--until-empty", "process_file", "delete_file", "--", script)
		return state(deletion.JobID).Status == "completed"
	})
	if _, err := os.Stat(filepath.Join(there, "images", good.FileID)); !os.IsNotExist(err) {
		t.Errorf("the deleted file: %v", err)
	}
	if j := state(bad.JobID); j.Status != "failed" || !strings.Contains(j.Error, "not a picture") {
		t.Errorf("text: %+v", j)
	}

	liar := upload(stripedJPEG(1200, 1000))
	work(there, "--max-jobs", "1", "process_file", "--", "echo",
		`{"width":1200,"height":1000,"variants":[]}`)
	if j := state(liar.JobID); j.Status != "failed_retryable" || j.Type != "result" ||
		!strings.Contains(j.Error, "must have 2 variants") {
		t.Errorf("a result that does not hold: %+v", j)
	}
	paged := upload(stripedJPEG(1200, 1000))
	checkImagesPage(t, binary, server.url, there, script)
	if j := state(paged.JobID); j.Status != "completed" {
		t.Errorf("a picture by the page's command: %+v", j)
	}
	if err := server.terminate(); err != nil {
		t.Error(err)
	}
}

// checkImagesPage starts the worker by the command of docs/images-worker.md, with a copy of the
// script that keeps what goes through it, and compares that with the JSON of the page.
func checkImagesPage(t *testing.T, binary, url, objects, script string) {
	t.Helper()
	dir := t.TempDir()
	copied := "#!/bin/sh\nset -eu\n[ -n \"${MILLRACE_RUN_ID:-}\" ] || exec millrace work " +
		"--contract images \"$@\" process_file delete_file -- \"$0\"\n" +
		"tee " + dir + "/input | " + script + " | tee " + dir + "/output\n"
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "docs"), 0o700),
		os.WriteFile(filepath.Join(dir, "docs/thumbs.sh"), []byte(copied), 0o700),
		os.MkdirAll(filepath.Join(dir, "millrace-data/objects"), 0o700),
		os.Symlink(objects, filepath.Join(dir, "millrace-data/objects/millrace")))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(codeBlocks(t, "images-worker.md", "sh")[0], "\n") // behind the server
	line = strings.TrimSpace(line) + " --until-empty"
	c := boundedCommand(t, "sh", "-c", line)
	c.Dir = dir
	c.Env = append(os.Environ(), "MILLRACE_SERVER="+url,
		"PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	for i, name := range []string{"input", "output"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var got, page map[string]any
		err = errors.Join(json.Unmarshal(text, &got),
			json.Unmarshal([]byte(codeBlocks(t, "images-worker.md", "json")[i]), &page))
		members := func(of map[string]any) []string { return slices.Sorted(maps.Keys(of)) }
		if err != nil || !slices.Equal(members(got), members(page)) {
			t.Errorf("the %s of the command is %s, on the page %v: %v", name, text, page, err)
		}
	}
}

// rotatedJPEG gives a JPEG the EXIF field that says it is to be turned by 90 degrees.
func rotatedJPEG(picture []byte) []byte {
	exif := "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
	segment := "\xff\xe1\x00" + string(rune(len(exif)+2)) + exif
	return slices.Concat(picture[:2], []byte(segment), picture[2:])
}
