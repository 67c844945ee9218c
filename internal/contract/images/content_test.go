package images_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// safe are the headers that every answer with an object has.
func safe(t *testing.T, r testkit.Reply, mime string) {
	t.Helper()
	for name, want := range map[string]string{"Content-Type": mime,
		"X-Content-Type-Options": "nosniff", "Accept-Ranges": "bytes",
		"Content-Security-Policy": "default-src 'none'; sandbox", "Content-Disposition": "inline",
		"Content-Encoding": ""} {
		assertEqual(t, name, r.Header.Get(name), want)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	picture := jpegOf(t, 300, 200)
	r := w.put(t, picture)
	w.attempt(t, r.JobID)
	w.partly(t, filesPath+"/"+r.FileID+"/content", picture)
	url := w.file(t, r.FileID, "ready").Variants[1].URL
	w.partly(t, url, []byte(w.Do(t, "GET", url, "").Body))
	t.Run("a variant has one address", func(t *testing.T) {
		for size, want := range map[string]int{"16": 200, "%31%36": 200, "016": 404, "0016": 404,
			"+16": 404, "-16": 404, "16.0": 404,
			"16%20": 404, "1_6": 404, "0": 404, "": 404} {
			for _, method := range []string{"GET", "HEAD"} {
				assertEqual(t, method+" "+size,
					w.Do(t, method, filesPath+"/"+r.FileID+"/variants/"+size, "").Status, want)
			}
		}
	})
	t.Run("an object that is lost is the server's fault, and the log names it", func(t *testing.T) {
		lost := w.file(t, r.FileID, "ready").Variants[0]
		if err := w.objects.Delete(t.Context(), "", lost.Key); err != nil {
			t.Fatal(err)
		}
		got := w.Do(t, "GET", lost.URL, "").WantError(t, 500, "INTERNAL_ERROR")
		assertEqual(t, "what is said of it", got.Header.Get("ETag")+got.Header.Get("Cache-Control"),
			"")
		lines := w.log.Lines(t, map[string]any{"level": "ERROR", "action": "get_variant"})
		if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["error_message"]), lost.Key) {
			t.Errorf("the log says %v", lines)
		}
	})
	t.Run("HEAD of what is not there, or not any more", func(t *testing.T) {
		w.Do(t, "HEAD", filesPath+"/"+r.JobID+"/content", "").WantStatus(t, 404).WantEmpty(t)
		w.Do(t, "DELETE", filesPath+"/"+r.FileID, "").WantStatus(t, 202)
		for _, path := range []string{url, filesPath + "/" + r.FileID + "/content"} {
			got := w.Do(t, "HEAD", path, "").WantStatus(t, 410).WantEmpty(t)
			assertEqual(t, "tag", got.Header.Get("ETag")+got.Header.Get("Cache-Control"), "")
		}
	})
}

// partly reads an object by its header, in parts, and where it is known already.
func (w *world) partly(t *testing.T, path string, whole []byte) {
	t.Helper()
	size := len(whole)
	head := w.Do(t, "HEAD", path, "").WantStatus(t, 200).WantEmpty(t)
	safe(t, head, "image/jpeg")
	assertEqual(t, "length", head.Header.Get("Content-Length"), fmt.Sprint(size))
	tag, modified := head.Header.Get("ETag"), head.Header.Get("Last-Modified")
	if tag == "" || modified == "" {
		t.Fatalf("tag %q, modified %q", tag, modified)
	}
	get := func(header ...string) testkit.Reply { return w.Do(t, "GET", path, "", header...) }
	for given, want := range map[string][2]int{"bytes=0-0": {0, 1}, "bytes=0-9": {0, 10},
		"bytes=100-": {100, size}, "bytes=-7": {size - 7, size},
		"bytes=5-99999999": {5, size}, "bytes=0-": {0, size}, "bytes=-99999999": {0, size}} {
		got := get("Range", given).WantStatus(t, 206)
		safe(t, got, "image/jpeg")
		assertEqual(t, given, got.Header.Get("Content-Range"),
			fmt.Sprintf("bytes %d-%d/%d", want[0], want[1]-1, size))
		assertEqual(t, given, got.Body == string(whole[want[0]:want[1]]), true)
	}
	for _, given := range []string{"items=0-1", "bytes=0-1,3-4", "0-1"} { // those are passed over
		assertEqual(t, given, get("Range", given).WantStatus(t, 200).Body == string(whole), true)
	}
	for _, given := range []string{fmt.Sprintf("bytes=%d-", size), "bytes=x", "bytes=9-3"} {
		got := get("Range", given)
		got.WantError(t, 416, "RANGE_NOT_SATISFIABLE")
		assertEqual(t, given, got.Header.Get("Cache-Control")+got.Header.Get("ETag"), "")
	}
	assertEqual(t, "what there is", get("Range",
		fmt.Sprintf("bytes=%d-", size)).Header.Get("Content-Range"),
		fmt.Sprintf("bytes */%d", size))
	get("Range", "bytes=0-9", "If-Range", tag).WantStatus(t, 206)
	get("Range", "bytes=0-9", "If-Range", `"other"`).WantStatus(t, 200)
	early := testkit.StartTime.AddDate(-9, 0, 0).Format(time.RFC1123)[:26] + "GMT"
	get("If-Modified-Since", modified).WantStatus(t, 304).WantEmpty(t)
	get("If-Modified-Since", early).WantStatus(t, 200)
	get("If-None-Match", `"other"`, "If-Modified-Since", modified).WantStatus(t, 200)
	get("If-Match", `"other"`).WantError(t, 412, "PRECONDITION_FAILED")
	get("If-Match", tag).WantStatus(t, 200)
	w.Do(t, "HEAD", path, "", "If-None-Match", tag).WantStatus(t, 304)
	w.Do(t, "HEAD", path, "", "Range", "bytes=0-9").WantStatus(t, 200).WantEmpty(t)
	var again bytes.Buffer // as a download does that goes on where it was cut off
	for at := 0; at < size; at += 1000 {
		again.WriteString(get("Range", fmt.Sprintf("bytes=%d-%d", at, at+999), "If-Range",
			tag).WantStatus(t, 206).Body)
	}
	assertEqual(t, "put together", bytes.Equal(again.Bytes(), whole), true)
}
