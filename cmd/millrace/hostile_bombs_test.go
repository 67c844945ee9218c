package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// bomb is a body that is small for its sender and large for a reader who trusts it.
type bomb struct {
	name, encoding string
	body           []byte
	// isValid says that it may be taken, by routes that keep any JSON or read nothing of it.
	isValid bool
}

// bombs are JSON that is deep, long, or has more members than anybody needs, and gzip streams.
func bombs(t *testing.T) []bomb {
	t.Helper()
	pack := func(parts ...[]byte) []byte {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			_, _ = z.Write(part)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	zeros := make([]byte, 64<<20)
	var members strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `"m%d":%d,`, i, i)
	}
	packed := pack(zeros)
	return []bomb{
		{name: "arrays", body: bytes.Repeat([]byte("["), 1<<20)},
		{name: "closed arrays", body: []byte(strings.Repeat("[", 500_000) +
			strings.Repeat("]", 500_000))},
		{name: "objects", body: bytes.Repeat([]byte(`{"a":`), 200_000)},
		{name: "a number", body: bytes.Repeat([]byte("9"), 2<<20), isValid: true},
		{name: "an exponent", body: []byte(`{"timeout":1e` + strings.Repeat("9", 1<<20) + `}`),
			isValid: true},
		{name: "a string", body: []byte(`"` + strings.Repeat(`\u0000`, 200_000) + `"`), isValid: true},
		{name: "members", body: []byte("{" + members.String() + `"z":1}`), isValid: true},
		{name: "the same members", body: []byte("{" + strings.Repeat(`"a":1,`, 100_000) +
			`"a":1}`), isValid: true},
		{name: "gzip of zeros", encoding: "gzip", body: packed},
		{name: "gzip of gzip", encoding: "gzip", body: pack(packed)},
		{name: "gzip of many streams", encoding: "gzip", body: bytes.Repeat(pack(zeros[:1<<20]), 64)},
		{name: "gzip of arrays", encoding: "gzip", body: pack(bytes.Repeat([]byte("["), 32<<20))},
		{name: "gzip with something behind it", encoding: "gzip", body: append(pack([]byte("{}")), 1, 2)},
		{name: "gzip that is cut off", encoding: "gzip", body: packed[:len(packed)/2]},
		{name: "deflate", encoding: "deflate", body: packed},
	}
}

// TestHostileBombs: each bomb is sent to each route that takes a body. The answer is a refusal in
// the form of the contract, and the server needs no more memory than for a few large requests.
func TestHostileBombs(t *testing.T) {
	t.Parallel()
	n := startHostile(t, "")
	n.plant(t)
	n.sendEndless(t)
	all, sent := bombs(t), 0
	for i, r := range n.routes {
		if r.operation == nil || r.operation.RequestBody == nil ||
			strings.HasSuffix(r.pattern, "/token/rotate") {
			continue
		}
		for j, b := range all {
			if !isFullHostile() && (i+j)%2 == 0 { // each to half of the routes
				continue
			}
			isImage := r.pattern == "/images/v1/files"
			if isImage && b.isValid { // which is no picture either, found out by its job
				continue
			}
			n.sendBomb(t, r, b)
			sent++
		}
	}
	n.uploadBombs(t)
	if sent < 450 {
		t.Errorf("only %d bombs were sent", sent)
	}
	peak := n.peakMemory(t)
	t.Logf("%d bombs; the server had %d MiB at most", sent, peak)
	if peak > 1024 {
		t.Errorf("the server had %d MiB", peak)
	}
	n.wantHealthy(t)
}

// sendBomb sends a bomb to a route. The documents are checked too, by the client.
func (n *hostileNode) sendBomb(t *testing.T, r hostileRoute, b bomb) {
	t.Helper()
	header := append(n.rightfulHeader(r), "X-Fetchbox-Job-Type", "default")
	if b.encoding != "" {
		header = append(header, "Content-Encoding", b.encoding)
	}
	got := n.do(t, r.method, n.path(t, r), string(b.body), header...)
	if got.status < 400 && !b.isValid {
		t.Errorf("%s takes %s: %d %.200s", r, b.name, got.status, got.body)
	}
	if len(got.body) > 8<<10 && got.status >= 400 {
		t.Errorf("%s refuses %s with %d bytes", r, b.name, len(got.body))
	}
}

// sendEndless sends a body without a length that goes on until somebody stops it.
func (n *hostileNode) sendEndless(t *testing.T) {
	t.Helper()
	for path, caller := range map[string]string{"/v2/queues/jobs": "relay", "/v1/jobs": "owner",
		"/api/v1/jobs": "taskflow", "/jobs": "fetchbox", "/images/v1/jobs": "images",
		"/worker/v1/claims": "worker", "/admin/v1/bulk": "operator"} {
		endless := io.LimitReader(spaces{}, 1<<30)
		req, err := http.NewRequestWithContext(t.Context(), "POST", n.url+path, endless)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Fetchbox-Job-Type", "default")
		req.Header.Set("Authorization", "Bearer "+n.secrets[caller])
		resp, err := n.raw.Do(req)
		if err != nil {
			continue // the connection was closed before the answer was read
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("an endless body for %s is answered with %d", path, resp.StatusCode)
		}
	}
}

// spaces is a reader of spaces without end.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// uploadBombs uploads pictures that claim to be larger than anybody can decode. Their jobs fail.
func (n *hostileNode) uploadBombs(t *testing.T) {
	t.Helper()
	huge := []byte(canaryPicture(t))
	if at := bytes.Index(huge, []byte{0xff, 0xc0}); at > 0 {
		copy(huge[at+5:], []byte{0xff, 0xff, 0xff, 0xff})
	}
	frame := "\x2c\x00\x00\x00\x00\x10\x00\x10\x00\x00\x02\x0e\x8c\x8f\xa9\xcb\xed\x0f\xa3\x9c\xb4" +
		"\xda\x8b\xb3\xde\xbc\x00"
	for name, picture := range map[string]string{"65,535 x 65,535": string(huge),
		"100,000 frames": "GIF89a\x10\x00\x10\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff" +
			strings.Repeat(frame, 100_000) + ";"} {
		var made struct {
			JobID string `json:"job_id"`
		}
		n.as(t, "images", "POST", "/images/v1/files", picture, http.StatusAccepted, &made,
			"Content-Type", "image/jpeg")
		testkit.WaitUntil(t, "the end of "+name, func() bool {
			return strings.Contains(n.do(t, "GET", "/images/v1/jobs/"+made.JobID, "",
				n.bearer("images")...).body, `"failed"`)
		})
	}
}
