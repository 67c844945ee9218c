package handler_test

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
)

// hostile are texts that would like to be somewhere else.
var hostile = []string{"..", ".", "../up", "../../../etc/passwd", "/abs", "//x", "a/b", `a\b`,
	`..\up`, "nul\x00l", "a\nb", "a\rb", "\u202e", "\xff\xfe", "%2e%2e%2f", "~", "~root",
	".hidden", "x.attrs", ".attrs", "X.ATTRS", "con", " ", "a b", "ü", "x?y#z",
	strings.Repeat("x", 128), strings.Repeat("/", 128), strings.Repeat("ü", 128),
	strings.Repeat("a", 300)}

func TestSegment(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"resource_name_01": "resource_name_01", "a.b-c_D9": "a.b-c_D9", "..": "%2E.", ".x": "%2Ex",
		"a/b": "a%2Fb", "a b": "a%20b", "ü": "%C3%BC", "%2e": "%252e", "~": "%7E",
		strings.Repeat("a", 200): strings.Repeat("a", 200),
	} {
		if got := handler.Segment(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	seen := map[string]string{}
	for _, text := range hostile {
		s := handler.Segment(text)
		switch {
		case s == "" || len(s) > 200 || strings.HasPrefix(s, ".") ||
			strings.HasSuffix(s, ".attrs") || path.Clean("/a/"+s) != "/a/"+s:
			t.Errorf("%q is %q", text, s)
		case strings.ContainsFunc(s, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '/' || r == '\\'
		}):
			t.Errorf("%q is %q", text, s)
		case seen[s] != "":
			t.Errorf("%q and %q are both %q", text, seen[s], s)
		}
		seen[s] = text
	}
	for text, want := range map[string]string{strings.Repeat("a", 201): strings.Repeat("a", 120),
		"x.attrs": "x.attrs"} {
		short := handler.Segment(text)
		if kept, digest, _ := strings.Cut(short, "~"); kept != want || len(digest) != 32 {
			t.Errorf("%q is %q", text, short)
		}
	}
	long := handler.Segment(strings.Repeat("a", 201))
	// What is written like a shortened one is not one.
	if again := handler.Segment(long); again == long {
		t.Errorf("%q stands for two texts", long)
	}
}

func FuzzSegment(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := handler.Segment(text)
		if len(s) > 200 || strings.ContainsAny(s, "/\\\x00\n ") || strings.HasPrefix(s, ".") ||
			strings.HasSuffix(s, ".attrs") || (text != "" && s == "") {
			t.Fatalf("%q is %q", text, s)
		}
	})
}

func TestKey(t *testing.T) {
	t.Parallel()
	t.Run("FB-082 the default place", func(t *testing.T) {
		if got := handler.Key("", "news", "job", "r/1"); got != "resources/news/job/r%2F1" {
			t.Error(got)
		}
	})
	t.Run("FB-071 G-FB-32 a prefix stands in its place", func(t *testing.T) {
		if got := handler.Key("gallery/", "news", "job", ".."); got != "gallery/job/%2E." {
			t.Error(got)
		}
	})
	t.Run("FB-085 whatever the names", func(t *testing.T) {
		for _, job := range hostile {
			for _, id := range hostile {
				if got := handler.Key("", "t", job, id); !strings.HasPrefix(path.Clean("/"+got),
					"/resources/t/") || strings.Count(got, "/") != 3 {
					t.Errorf("%q of %q is at %q", id, job, got)
				}
			}
		}
	})
}

var theJob = handler.Job{ID: "job", Type: "t", Tenant: "acme", ManifestKey: "s3://b/m",
	TraceID: "trace"}

func TestDefault(t *testing.T) {
	t.Parallel()
	t.Run("FB-073 FB-038 the manifest as it is", func(t *testing.T) {
		h, err := handler.Registry()["default"].New(nil)
		if err != nil {
			t.Fatal(err)
		}
		m := handler.Manifest{Version: "v1", Metadata: []byte(`{ "a":1}`),
			Resources: []handler.Resource{
				{ID: "a", URL: "http://a/", Headers: map[string]string{"X": "y"},
					Tags: map[string]string{"k": "v"}}, {ID: "b", URL: "http://b/"}}}
		prepared, err := h.Prepare(context.Background(), theJob, m)
		if err != nil || !reflect.DeepEqual(prepared, m) {
			t.Errorf("got %+v, %v", prepared, err)
		}
		tasks, err := h.Tasks(context.Background(), theJob, prepared)
		want := []handler.Task{
			{JobID: "job", JobType: "t", ResourceID: "a", URL: "http://a/",
				Headers: map[string]string{"X": "y"}, Tags: map[string]string{"k": "v"},
				ManifestKey: "s3://b/m", Tenant: "acme", TraceID: "trace"},
			{JobID: "job", JobType: "t", ResourceID: "b", URL: "http://b/", ManifestKey: "s3://b/m",
				Tenant: "acme", TraceID: "trace"},
		}
		if err != nil || !reflect.DeepEqual(tasks, want) {
			t.Errorf("got %+v, %v", tasks, err)
		}
		if err := h.Finalize(context.Background(), handler.Summary{Job: theJob}); err != nil {
			t.Error(err)
		}
	})
	t.Run("G-FB-25 FB-072 names and options", func(t *testing.T) {
		want := map[string][]string{"default": nil, "exec": nil, "http": nil,
			"fetchbox_handlers::gallery::GalleryHandler": {"album"}, "gallery": {"album"}}
		if got := handler.Options(); !reflect.DeepEqual(got, want) {
			t.Error(got)
		}
	})
}

func TestGallery(t *testing.T) {
	t.Parallel()
	adjust := func(t *testing.T, options map[string]any, task handler.Task) handler.Task {
		t.Helper()
		h, err := handler.Registry()["fetchbox_handlers::gallery::GalleryHandler"].New(options)
		if err != nil {
			t.Fatal(err)
		}
		once := []handler.Task{task}
		if err := h.Adjust(context.Background(), once); err != nil {
			t.Fatal(err)
		}
		twice := slices.Clone(once)
		if err := h.Adjust(context.Background(), twice); err != nil ||
			!reflect.DeepEqual(once, twice) {
			t.Errorf("adjusted again it is %+v, %v", twice, err)
		}
		return once[0]
	}
	picture := handler.Task{JobID: "job", ResourceID: "front",
		URL:  "https://example.com/a/IMG.JPG?x=1.png",
		Tags: map[string]string{"gallery": "summer/24", "by": "me"}}
	t.Run("FB-079 a place by the tag", func(t *testing.T) {
		if got := adjust(t, nil, picture); got.Storage.Key != "galleries/summer%2F24/front.jpg" ||
			fmt.Sprint(got.Storage.Metadata) != "map[by:me gallery:summer/24]" {
			t.Errorf("got %+v", got.Storage)
		}
	})
	t.Run("FB-072 the option album", func(t *testing.T) {
		if got := adjust(t, map[string]any{"album": "shows", "max_parallel_downloads": 8},
			picture); got.Storage.Key != "shows/summer%2F24/front.jpg" {
			t.Errorf("got %+v", got.Storage)
		}
		for _, wrong := range []any{"", 7, []any{"a"}, "../up/"} {
			if _, err := handler.Registry()["gallery"].New(
				map[string]any{"album": wrong}); err == nil && wrong != "../up/" {
				t.Errorf("%v is taken for an album", wrong)
			}
		}
		if got := adjust(t, map[string]any{"album": "../up/"},
			picture); got.Storage.Key != "%2E.%2Fup%2F/summer%2F24/front.jpg" {
			t.Errorf("got %+v", got.Storage)
		}
	})
	t.Run("an ending that is there, or none that is known", func(t *testing.T) {
		for id, url := range map[string]string{"a.jpg": "http://x/a.jpg", "b": "http://x/b.exe",
			"c": "http://x/"} {
			task := picture
			task.ResourceID, task.URL = id, url
			if got := adjust(t, nil, task); got.Storage.Key != "galleries/summer%2F24/"+id {
				t.Errorf("got %+v", got.Storage)
			}
		}
	})
	t.Run("FB-071 without the tag it is where its type says", func(t *testing.T) {
		task := picture
		task.Tags = map[string]string{"by": "me"}
		if got := adjust(t, nil, task); got.Storage.Key != "" ||
			got.Storage.Metadata["by"] != "me" {
			t.Errorf("got %+v", got.Storage)
		}
	})
	t.Run("FB-079 a place of its own stays", func(t *testing.T) {
		task := picture
		task.Storage = &handler.Storage{Bucket: "b", Key: "k",
			Metadata: map[string]string{"m": "1"}}
		if got := adjust(t, nil, task); !reflect.DeepEqual(got, task) {
			t.Errorf("got %+v", got)
		}
	})
}
