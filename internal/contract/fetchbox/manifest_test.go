package fetchbox_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
)

// pairs writes n members with values of a length.
func pairs(n, length int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"h%d":%q`, i, strings.Repeat("v", length)))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// resources writes a manifest with these entries.
func resources(entries string) string {
	return `{"manifest_version":"v1","metadata":{},"resources":` + entries + `}`
}

func TestManifest(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	one := `[{"id":"r","url":"http://example.com"}]`
	id := func(id string) string { return `{"id":"` + id + `","url":"http://example.com"}` }
	for name, body := range map[string]string{
		"FB-010 no version": `{"metadata":{},"resources":` + one + `}`,
		"FB-010 another version": `{"manifest_version":"v2","metadata":{},"resources":` +
			one + `}`,
		"FB-010 a version as a number": `{"manifest_version":1,"metadata":{},"resources":` +
			one + `}`,
		"FB-011 an array": `{"manifest_version":"v1","metadata":[],"resources":` +
			one + `}`,
		"FB-011 a string": `{"manifest_version":"v1","metadata":"x","resources":` + one +
			`}`,
		"FB-011 null": `{"manifest_version":"v1","metadata":null,"resources":` + one +
			`}`,
		"FB-012 no metadata":        `{"manifest_version":"v1","resources":` + one + `}`,
		"FB-014 no resources":       `{"manifest_version":"v1","metadata":{}}`,
		"FB-014 null":               resources("null"),
		"FB-014 none":               resources("[]"),
		"FB-014 1001":               manifest(1001),
		"FB-014 an object":          resources(`{"id":"r","url":"http://example.com"}`),
		"FB-014 a resource is text": resources(`["http://example.com"]`),
		"FB-015 no id":              resources(`[{"url":"http://example.com"}]`),
		"FB-015 an empty id":        resources("[" + id("") + "]"),
		"FB-015 129 characters":     resources("[" + id(strings.Repeat("é", 129)) + "]"),
		"FB-015 twice":              resources("[" + id("a") + "," + id(`\u0061`) + "]"),
		"FB-015 half a character":   resources("[" + id(`\ud800`) + "]"),
		"FB-085 an id with NUL":     resources("[" + id(`a\u0000`) + "]"),
		"FB-015 a number":           resources(`[{"id":7,"url":"http://example.com"}]`),
		"FB-016 no url":             resources(`[{"id":"r"}]`),
		"FB-016 null":               resources(`[{"id":"r","url":null}]`),
		"FB-016 G-FB-13 ftp":        resources(`[{"id":"r","url":"ftp://example.com/a"}]`),
		"FB-016 file":               resources(`[{"id":"r","url":"file:///etc/passwd"}]`),
		"FB-016 no scheme":          resources(`[{"id":"r","url":"//example.com/a"}]`),
		"FB-016 no host":            resources(`[{"id":"r","url":"http:///a"}]`),
		"FB-016 a line break": resources(
			`[{"id":"r","url":"http://example.com/\n"}]`),
		"FB-017 a number":                   manifestWith(`,"headers":{"A":1}`),
		"FB-017 null":                       manifestWith(`,"headers":{"A":null}`),
		"FB-017 no map":                     manifestWith(`,"headers":["A"]`),
		"FB-018 11 headers":                 manifestWith(`,"headers":` + pairs(11, 1)),
		"FB-019 1025 bytes":                 manifestWith(`,"headers":` + pairs(1, 1025)),
		"FB-020 a line break":               manifestWith(`,"headers":{"A":"b\r\nC: d"}`),
		"FB-020 a control character":        manifestWith(`,"headers":{"A":"b\u0001"}`),
		"FB-020 a tab":                      manifestWith(`,"headers":{"A":"b\tc"}`),
		"FB-020 in a name":                  manifestWith(`,"headers":{"A\n":"b"}`),
		"FB-020 an empty name":              manifestWith(`,"headers":{"":"b"}`),
		"FB-020 a header of the connection": manifestWith(`,"headers":{"Host":"other"}`),
		"FB-021 a tag as a number":          manifestWith(`,"tags":{"A":1}`),
		"FB-021 G-FB-18 11 tags":            manifestWith(`,"tags":` + pairs(11, 1)),
		"FB-021 G-FB-18 1025 bytes":         manifestWith(`,"tags":` + pairs(1, 1025)),
		"FB-022 an array": strings.Replace(manifest(1), `"metadata"`,
			`"attributes":[],"metadata"`, 1),
		"FB-022 null": strings.Replace(manifest(1), `"metadata"`,
			`"attributes":null,"metadata"`, 1),
		"FB-039 no JSON":       `{"manifest_version":`,
		"FB-039 more than one": manifest(1) + "{}",
		"FB-039 an array":      "[" + manifest(1) + "]",
		"FB-039 no UTF-8":      strings.Replace(manifest(1), "crawl", "\xff", 1),
		"FB-039 too deep": strings.Replace(manifest(1), `{"crawl":1}`,
			`{"a":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+"}", 1),
	} {
		t.Run(name, func(t *testing.T) { w.post(t, body).WantError(t, 400, "INVALID_PAYLOAD") })
	}
	t.Run("FB-039 an empty body", func(t *testing.T) {
		w.post(t, "", "Content-Type", "application/json").WantError(t, 400, "INVALID_PAYLOAD")
	})
	t.Run("FB-026 nothing is left of them", func(t *testing.T) { w.wantNothingStored(t) })
}

func TestManifestAccepts(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	last := func(t *testing.T) taskMessage {
		w.deliver(t)
		sent := w.messages(t)
		return sent[len(sent)-1]
	}
	t.Run("FB-014 1000 resources", func(t *testing.T) {
		assertEqual(t, "resources", w.submit(t, manifest(1000)).ResourceCount, 1000)
	})
	t.Run("FB-015 an id of 128 characters of any kind", func(t *testing.T) {
		id := strings.Repeat("é/", 64)
		w.submit(t, resources(`[{"id":"`+id+`","url":"HTTPS://example.com"}]`))
		assertEqual(t, "id", last(t).ResourceID, id)
	})
	t.Run("FB-018 FB-019 G-FB-18 as many and as long as may be, beside the defaults",
		func(t *testing.T) {
			w.submit(t, manifestWith(`,"headers":`+pairs(10, 1024)+`,"tags":`+pairs(10, 1024)))
			m := last(t)
			assertEqual(t, "headers and tags", fmt.Sprint(len(m.Headers), len(m.Tags)), "12 10")
		})
	t.Run("FB-017 FB-023 a resource's header wins, however it is spelled", func(t *testing.T) {
		w.submit(t, manifestWith(`,"headers":{"user-agent":"mine","Referer":"x"}`))
		m := last(t)
		assertEqual(t, "headers", fmt.Sprint(m.Headers),
			"map[Referer:x X-From:type user-agent:mine]")
	})
	t.Run("FB-021 tags are handed on", func(t *testing.T) {
		w.submit(t, manifestWith(`,"tags":{"content_type":"image/jpeg","é":"\u0001"}`))
		assertEqual(t, "tags", fmt.Sprintf("%q", last(t).Tags),
			`map["content_type":"image/jpeg" "é":"\x01"]`)
	})
	t.Run("FB-022 G-FB-28 attributes are data", func(t *testing.T) {
		w.submit(t, strings.Replace(manifest(1), `"metadata"`,
			`"attributes":{"priority":"high"},"metadata"`, 1))
	})
	t.Run("G-X-15 the last of two members counts", func(t *testing.T) {
		w.submit(t, strings.Replace(manifest(1), `{"manifest_version":"v1"`,
			`{"manifest_version":"v0","manifest_version":"v1"`, 1))
	})
	t.Run("FB-075 the number of resources is a setting", func(t *testing.T) {
		c := config()
		c.MaxResources = 3
		w := inMemory(t, c)
		w.submit(t, manifest(3))
		w.post(t, manifest(4)).WantError(t, 400, "INVALID_PAYLOAD", "3")
	})
}

// zip compresses a text, as one member for each part.
func zip(t testing.TB, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, part := range parts {
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// zippedZeros compresses a number of MiB of zero bytes, which are never in memory at once.
func zippedZeros(t testing.TB, mebibytes int) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for chunk := make([]byte, 1<<20); mebibytes > 0; mebibytes-- {
		if _, err := z.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sized is a manifest of a number of bytes.
func sized(n int) string {
	text := manifest(1)
	return strings.Replace(text, `"crawl":1`, `"crawl":"`+strings.Repeat("x", n-len(text)-1)+`"`, 1)
}

// TestGunzipBomb is FB-025: the limit bounds what a bomb allocates, and not what it unpacks to.
func TestGunzipBomb(t *testing.T) { // not parallel: it counts allocations
	bomb := []byte(zippedZeros(t, 64))
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := fetchbox.Gunzip(bomb, maxManifest); err != nil {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 8*maxManifest {
		t.Errorf("%d bytes are allocated for it", allocated)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	encoded := []string{"Content-Encoding", "gzip", beyondDocument, "1"}
	t.Run("FB-024 G-FB-10 exactly 5 MiB", func(t *testing.T) {
		body := sized(maxManifest)
		assertEqual(t, "size", len(body), maxManifest)
		r := w.submit(t, body)
		assertEqual(t, "stored", len(w.object(t, r.ManifestKey)), maxManifest)
	})
	t.Run("FB-024 FB-042 one byte more", func(t *testing.T) {
		w.post(t, sized(maxManifest+1)).WantError(t, 413, "PAYLOAD_TOO_LARGE")
	})
	t.Run("FB-024 far more, announced and not", func(t *testing.T) {
		w.post(t, sized(2*maxManifest)).WantError(t, 413, "PAYLOAD_TOO_LARGE")
		req, _ := http.NewRequest("POST", w.URL+"/jobs",
			struct{ *strings.Reader }{strings.NewReader(sized(2 * maxManifest))})
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Fetchbox-Job-Type", gallery)
		w.Send(t, req).WantError(t, 413, "PAYLOAD_TOO_LARGE")
	})
	t.Run("FB-006 FB-013 gzip is as if sent plain", func(t *testing.T) {
		text := manifest(7)
		r := w.submit(t, zip(t, text), encoded...)
		assertEqual(t, "resources", r.ResourceCount, 7)
		assertEqual(t, "stored", string(w.object(t, r.ManifestKey)), text)
	})
	t.Run("G-FB-38 several members", func(t *testing.T) {
		text := manifest(7)
		w.submit(t, zip(t, text[:20], text[20:]), encoded...)
	})
	t.Run("FB-006 exactly 5 MiB, zipped", func(t *testing.T) {
		w.submit(t, zip(t, sized(maxManifest)), encoded...)
	})
	t.Run("FB-025 one byte more, zipped", func(t *testing.T) {
		w.post(t, zip(t, sized(maxManifest+1)), encoded...).WantError(t, 413, "PAYLOAD_TOO_LARGE")
	})
	t.Run("FB-025 a bomb", func(t *testing.T) {
		w.post(t, zippedZeros(t, 64), encoded...).WantError(t, 413, "PAYLOAD_TOO_LARGE")
	})
	before := len(w.all(t, fetchbox.Name))
	for name, c := range map[string]struct{ encoding, body string }{
		"FB-007 no gzip": {"gzip", manifest(1)},
		"FB-007 cut off": {"gzip", zip(t, manifest(9))[:60]},
		"FB-007 a wrong checksum": {"gzip",
			zip(t, manifest(1))[:len(zip(t, manifest(1)))-8] + "12345678"},
		"FB-007 G-FB-09 bytes after it":    {"gzip", zip(t, manifest(1)) + "x"},
		"FB-007 nothing":                   {"gzip", ""},
		"FB-007 G-FB-09 another encoding":  {"br", manifest(1)},
		"FB-007 G-FB-09 several encodings": {"gzip, gzip", zip(t, zip(t, manifest(1)))},
		"FB-007 G-FB-09 deflate":           {"deflate", manifest(1)},
		"FB-024 identity that is not JSON": {"identity", "{"},
	} {
		t.Run(name, func(t *testing.T) {
			w.post(t, c.body, "Content-Encoding", c.encoding, "Content-Type",
				"application/json").WantError(t, 400, "INVALID_PAYLOAD")
		})
	}
	t.Run("FB-026 nothing is left of them", func(t *testing.T) {
		assertEqual(t, "jobs", len(w.all(t, fetchbox.Name)), before)
	})
	t.Run("FB-007 identity", func(t *testing.T) {
		w.submit(t, manifest(1), "Content-Encoding", "identity")
	})
}

// FuzzManifest: whatever the text, it is refused as the caller's fault, or it is JSON whose parts
// keep the limits.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{manifest(1), manifest(3),
		manifestWith(`,"headers":{"A":"b"},"tags":{"c":"d"}`), resources("[]"), `{}`, `[[[[`,
		"{\"\xff\":1}",
		manifestWith(`,"headers":{"\ud83d":"b"}`), manifestWith(`,"tags":{"a":"\u0000"}`),
		`{"manifest_version":"v1","metadata":{"a":1e999},"resources":[{"id":"\ud800","url":"http://x"}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := fetchbox.ReadManifest(text, 5)
		if err != nil {
			if !job.IsKind(err, job.Invalid) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q is refused as %s: %v", text, job.KindOf(err), err)
			}
			return
		}
		if !json.Valid(text) || !json.Valid(m.Metadata) || m.Metadata[0] != '{' ||
			(m.Attributes != nil && m.Attributes[0] != '{') {
			t.Fatalf("%q is accepted", text)
		}
		seen := map[string]bool{}
		for _, r := range m.Resources {
			n := utf8.RuneCountInString(r.ID)
			lower := strings.ToLower(r.URL)
			if seen[r.ID] || n < 1 || n > 128 ||
				(!strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://")) {
				t.Fatalf("the resource %q %q is accepted", r.ID, r.URL)
			}
			seen[r.ID] = true
			for _, values := range []map[string]string{r.Headers, r.Tags} {
				if len(values) > 10 {
					t.Fatalf("%d values are accepted", len(values))
				}
				for _, v := range values {
					if len(v) > 1024 {
						t.Fatalf("a value of %d bytes is accepted", len(v))
					}
				}
			}
			for name, v := range r.Headers {
				if name == "" || strings.ContainsAny(name+v, "\r\n\x00\t") {
					t.Fatalf("the header %q: %q is accepted", name, v)
				}
			}
		}
		if len(seen) < 1 || len(seen) > 5 {
			t.Fatalf("%d resources are accepted", len(seen))
		}
	})
}
