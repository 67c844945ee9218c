package fetchbox_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
)

// FuzzGunzip: whatever the body, it is refused as the caller's fault, or gives no more than limit
// bytes and the one that shows that there are too many. A text within the limit is the same under
// a higher limit, and what gzip has made of any text comes back (FB-025, G-FB-38).
func FuzzGunzip(f *testing.F) {
	const limit = 1 << 10
	zipped := gzipped(f, []byte("a text"))
	bomb := gzipped(f, make([]byte, 1<<20))
	for _, seed := range [][]byte{nil, {}, []byte("no gzip"), zipped, bomb,
		gzipped(f, make([]byte, limit)), gzipped(f, make([]byte, limit+1)),
		zipped[:len(zipped)-1], zipped[:len(zipped)-8], zipped[:10], bomb[:len(bomb)/2],
		append(bytes.Clone(zipped), "garbage"...), append(bytes.Clone(zipped), 0),
		append(bytes.Clone(zipped), zipped...), append(bytes.Clone(zipped), bomb...),
		append(bytes.Clone(zipped), zipped[:12]...), gzipped(f, zipped),
		[]byte(strings.Repeat("\x1f\x8b\x08\x1f", 64))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		text, err := fetchbox.Gunzip(body, limit)
		if err != nil && (!job.IsKind(err, job.Invalid) || text != nil) {
			t.Fatalf("%q is refused as %s, with %d bytes: %v", body, job.KindOf(err), len(text), err)
		}
		if len(text) > limit+1 {
			t.Fatalf("%q gives %d bytes", body, len(text))
		}
		more, moreErr := fetchbox.Gunzip(body, 4*limit)
		if len(text) <= limit && ((err == nil) != (moreErr == nil) || !bytes.Equal(text, more)) {
			t.Fatalf("%q gives %d bytes, %v, and %d, %v under a higher limit", body, len(text), err,
				len(more), moreErr)
		}
		if moreErr == nil && !bytes.HasPrefix(more, text) {
			t.Fatalf("%q gives another text under a higher limit", body)
		}
		back, err := fetchbox.Gunzip(gzipped(t, body), limit)
		if err != nil || !bytes.Equal(back, body[:min(len(body), limit+1)]) {
			t.Fatalf("%q comes back as %q, %v", body, back, err)
		}
	})
}

// gzipped is a text as one member of gzip.
func gzipped(tb testing.TB, text []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
