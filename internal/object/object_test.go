package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
)

func TestPut(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		full := object.Attributes{ContentType: "image/png",
			Metadata: map[string]string{"Source": "a b/ü%", "empty": "", "x_y-1": "z"}}
		info, err := w.Put(t.Context(), "", "a/b.c/d",
			iotest.OneByteReader(strings.NewReader("content")), full)
		if err != nil || info.Size != 7 || info.Key != "a/b.c/d" {
			t.Fatalf("got %+v, %v", info, err)
		}
		text, info := w.mustGet(t, "", "a/b.c/d")
		want := map[string]string{"source": "a b/ü%", "empty": "", "x_y-1": "z"}
		if text != "content" || info.Size != 7 || info.ContentType != "image/png" ||
			!maps.Equal(info.Metadata, want) || info.Modified.IsZero() {
			t.Errorf("got %q, %+v", text, info)
		}
		// Another one in its place, without its attributes.
		w.mustPut(t, "a/b.c/d", "")
		if text, info := w.mustGet(t, "millrace", "a/b.c/d"); text != "" ||
			info.ContentType != "application/octet-stream" || len(info.Metadata) != 0 {
			t.Errorf("got %q, %+v", text, info)
		}
		if got := w.URI("", "a/b"); got != "s3://millrace/a/b" {
			t.Errorf("got %s", got)
		}
		if err := w.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBuckets(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		w.mustPut(t, "k", "here")
		if _, err := w.Put(t.Context(), "other", "k", strings.NewReader("there"),
			object.Attributes{}); err != nil {
			t.Fatal(err)
		}
		here, _ := w.mustGet(t, "", "k")
		there, _ := w.mustGet(t, "other", "k")
		if here != "here" || there != "there" {
			t.Errorf("got %q and %q", here, there)
		}
	})
}

// TestPutFails leaves what was there before, and nothing beside it.
func TestPutFails(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		w.mustPut(t, "kept", "before")
		before := w.fileNames(t)
		torn := errors.New("the other end hung up")
		for _, size := range []int64{0, 10, 40 << 20} { // nothing, little, more than one part
			for _, key := range []string{"kept", "new"} {
				body := io.MultiReader(io.LimitReader(zeroes{}, size), iotest.ErrReader(torn))
				if _, err := w.Put(t.Context(), "", key, body,
					object.Attributes{ContentType: "text/plain"}); err != torn {
					t.Errorf("%s after %d bytes: got %v", key, size, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				body = io.MultiReader(io.LimitReader(zeroes{}, size),
					readerFunc(func([]byte) (int, error) {
						cancel()
						return 0, nil
					}), zeroes{})
				if _, err := w.Put(ctx, "", key, body, object.Attributes{}); !job.IsKind(err,
					job.Aborted) {
					t.Errorf("%s canceled after %d bytes: got %v", key, size, err)
				}
			}
		}
		if text, _ := w.mustGet(t, "", "kept"); text != "before" {
			t.Errorf("got %q", text)
		}
		if after := w.fileNames(t); !slices.Equal(after, before) {
			t.Errorf("got files %v, want %v", after, before)
		}
	})
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestAbsent(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		w.mustPut(t, "folder/file", "x")
		for _, key := range []string{"none", "folder", "folder/none", "folder/file/none"} {
			if _, _, err := w.Open(t.Context(), "", key); !job.IsKind(err, job.NotFound) {
				t.Errorf("%s: got %v", key, err)
			}
			if exists, err := w.Exists(t.Context(), "", key); exists || err != nil {
				t.Errorf("%s: got %v, %v", key, exists, err)
			}
			if err := w.Delete(t.Context(), "", key); err != nil {
				t.Errorf("%s: got %v", key, err)
			}
		}
		if exists, err := w.Exists(t.Context(), "", "folder/file"); !exists || err != nil {
			t.Errorf("got %v, %v", exists, err)
		}
		for range 2 {
			if err := w.Delete(t.Context(), "", "folder/file"); err != nil {
				t.Error(err)
			}
		}
		if exists, err := w.Exists(t.Context(), "", "folder/file"); exists || err != nil {
			t.Errorf("got %v, %v", exists, err)
		}
		w.mustPut(t, "folder/file", "again") // where the folder went with its last object
		w.mustPut(t, "folder/other", "beside")
	})
}

func TestList(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		if got, err := w.List(t.Context(), "", "", "", 10); len(got) != 0 || err != nil {
			t.Errorf("of nothing: got %v, %v", got, err)
		}
		// as their bytes are ordered
		keys := []string{"a-b", "a.b", "a/1", "a/2/x", "a/2/y", "a/3", "ab", "b/1", "ü"}
		for i := range keys {
			w.mustPut(t, keys[len(keys)-1-i], "x")
		}
		for _, tt := range []struct {
			prefix, after string
			n             int
			want          []string
		}{
			{"", "", 100, keys},
			{"", "", 3, keys[:3]},
			{"", "a/1", 3, keys[3:6]},
			{"", "a/2", 2, keys[3:5]},
			{"", "a/2/x", 1, keys[4:5]},
			{"", "a/2/z", 100, keys[5:]},
			{"a/", "", 100, keys[2:6]},
			{"a", "", 100, keys[:7]},
			{"a/2/", "a/2/x", 100, keys[4:5]},
			{"a/2/y", "", 100, keys[4:5]},
			{"c", "", 100, nil},
			{"", "ü", 100, nil},
		} {
			if got, err := w.List(t.Context(), "", tt.prefix, tt.after, tt.n); err != nil ||
				!slices.Equal(got, tt.want) {
				t.Errorf("%d of %q after %q: got %v, want %v (%v)", tt.n, tt.prefix, tt.after, got,
					tt.want, err)
			}
		}
	})
}

// TestInvalid refuses names that would mean something else in one of the places (FB-085).
func TestInvalid(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		before := w.fileNames(t)
		for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b",
			"a/./b", "a/..", "a\x00b", "a\nb", `a\b`, "a.attrs",
			"a.attrs/b", "\xff", strings.Repeat("k", 241), strings.Repeat("k/", 600) + "k"} {
			_, err := w.Put(t.Context(), "", key, strings.NewReader("x"), object.Attributes{})
			_, _, err2 := w.Open(t.Context(), "", key)
			_, err3 := w.Exists(t.Context(), "", key)
			for _, err := range []error{err, err2, err3, w.Delete(t.Context(), "", key)} {
				if !job.IsKind(err, job.Invalid) {
					t.Errorf("%q: got %v", key, err)
				}
			}
		}
		for _, bucket := range []string{"..", ".temp", "ab", "Upper", "a/b", "-abc", "abc.", "a..b",
			strings.Repeat("b", 64)} {
			_, err := w.Put(t.Context(), bucket, "k", strings.NewReader("x"), object.Attributes{})
			_, err2 := w.List(t.Context(), bucket, "", "", 1)
			if !job.IsKind(err, job.Invalid) || !job.IsKind(err2, job.Invalid) {
				t.Errorf("%q: got %v, %v", bucket, err, err2)
			}
		}
		for name, a := range map[string]object.Attributes{
			"a line end":       {ContentType: "a/b\r\nc"},
			"a name of signs":  {Metadata: map[string]string{"a b": ""}},
			"no name":          {Metadata: map[string]string{"": ""}},
			"the same name":    {Metadata: map[string]string{"a": "", "A": ""}},
			"more than 2 KiB":  {Metadata: map[string]string{"a": strings.Repeat("x", 2048)}},
			"no type but long": {ContentType: strings.Repeat("x", 256)},
		} {
			if _, err := w.Put(t.Context(), "", "k", strings.NewReader("x"), a); !job.IsKind(err,
				job.Invalid) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if after := w.fileNames(t); !slices.Equal(after, before) {
			t.Errorf("got files %v", after)
		}
	})
}

// TestPutAtTheSameTime lets many write one key and others beside it (FB-086): a reader always sees
// one of them whole, with its own attributes.
func TestPutAtTheSameTime(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		put := func(i int) {
			text := strings.Repeat(fmt.Sprint(i), 1000)
			a := object.Attributes{ContentType: fmt.Sprint("x/", i),
				Metadata: map[string]string{"i": fmt.Sprint(i)}}
			for _, key := range []string{"one", fmt.Sprint("beside/", i, "/x")} {
				if _, err := w.Put(t.Context(), "", key, strings.NewReader(text), a); err != nil {
					t.Error(err)
				}
			}
		}
		put(0)
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() { put(i) })
			wait.Go(func() {
				for range 10 {
					text, info := w.mustGet(t, "", "one")
					if i := info.Metadata["i"]; text != strings.Repeat(i, 1000) ||
						info.ContentType != "x/"+i || info.Size != 1000 {
						t.Errorf("got %d bytes that begin with %.5s, %+v", len(text), text, info)
					}
				}
			})
		}
		wait.Wait()
		if got, err := w.List(t.Context(), "", "beside/", "", 100); len(got) != 8 || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// TestOpenKeeps goes on reading what was opened when another is put in its place.
func TestOpenKeeps(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		large := bytes.Repeat([]byte("0123456789"), 1<<20)
		if _, err := w.Put(t.Context(), "", "k", bytes.NewReader(large),
			object.Attributes{}); err != nil {
			t.Fatal(err)
		}
		body, info, err := w.Open(t.Context(), "", "k")
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		w.mustPut(t, "k", "another")
		got, err := io.ReadAll(body)
		if err != nil || !bytes.Equal(got, large) || info.Size != int64(len(large)) {
			t.Errorf("got %d bytes of %d: %v", len(got), info.Size, err)
		}
	})
}
