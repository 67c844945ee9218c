package console

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// Every template is read, so a wrong one is found here.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, p := range New(nil).Pages() {
		if p.Handle == nil || p.Action == "" {
			t.Errorf("%s %s lacks something", p.Method, p.Pattern)
		}
	}
}

// Fields that were left empty are left out of a query, and values that end as they do are not: a
// filter that vanished would match too much.
func TestWithoutEmpty(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"action=cancel&queue=&text=x=&&state=": "action=cancel&text=x=",
		"everything":                           "everything",
		"":                                     "",
	} {
		if got := withoutEmpty(query); got != want {
			t.Errorf("of %q is left %q, want %q", query, got, want)
		}
	}
}

// JSON that indenting would make many times as long stays as it is.
func TestIndentJSON(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 500) + strings.Repeat("1,", 5000) + "1" + strings.Repeat("]", 500)
	long := `[` + strings.Repeat("1,", maxShown) + `1]`
	for raw, want := range map[string]string{
		`{"a":[1]}`: "{\n  \"a\": [\n    1\n  ]\n}", "": "null", "{": "{", deep: deep, long: long,
	} {
		if got := indentJSON([]byte(raw)); got != want {
			t.Errorf("of %.40q is made %.40q, %d characters", raw, got, len(got))
		}
	}
}

// Members of paths that browsers would take for steps are sent as others, and each comes back as it
// was.
func TestPathMembers(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, member := range []string{".", "..", "~", "~.", "~~", "~new", "new", "...", "a/b", "%2e",
		"é ?#", "nightly"} {
		path := pathOf("schedules", member)
		u, err := url.Parse("http://host" + path + "/edit")
		if err != nil {
			t.Fatal(err)
		}
		if cleaned := u.JoinPath().EscapedPath(); cleaned != path+"/edit" {
			t.Errorf("%q: %s is sent as %s", member, path, cleaned)
		}
		escaped := strings.TrimPrefix(path, Path+"/schedules/")
		if got, ok := decodeMember(escaped); !ok || got != member {
			t.Errorf("%q comes back from %s as %q", member, path, got)
		}
		if seen[path] != "" || path == newSchedule {
			t.Errorf("%q and %q have the path %s", member, seen[path], path)
		}
		seen[path] = member
	}
	for _, wrong := range []string{"", "~", "%00", "%zz"} {
		if got, ok := decodeMember(wrong); ok {
			t.Errorf("%q is %q", wrong, got)
		}
	}
}

// Rates are shown with two digits, however small they are, and counts as whole numbers.
func TestFormatCount(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.0017: "0.0017", 0.04: "0.04", 0.25: "0.25",
		0.999: "1", 1: "1", 1.25: "1.2", 9.5: "9.5", 10.4: "10", 1234: "1\u202f234"} {
		if got := formatCount(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// A text that is too long for a row has both its ends there, and all of it beside that, escaped.
func TestBrief(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"01a21455-7b48-76fc-b49c-8fcbeb7d8c80": `<span title="01a21455-7b48-76fc-b49c-8fcbeb7d8c80">` +
			`01a21455-7b…d8c80</span>`,
		"<b>": "&lt;b&gt;", "": "", "é" + strings.Repeat("x", 19): "é" + strings.Repeat("x", 19),
		strings.Repeat(`"<`, 20): `<span title="` + strings.Repeat("&#34;&lt;", 20) + `">` +
			strings.Repeat("&#34;&lt;", 5) + "&#34;…&lt;&#34;&lt;&#34;&lt;</span>",
		"\u202e": "&lt;U+202E&gt;",
	} {
		if got := string(abbreviate(text, 16)); got != want {
			t.Errorf("of %q is shown %q, want %q", text, got, want)
		}
	}
}

// Many consoles together leave the processor to the jobs.
func TestSecondsBetween(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		watches int
		took    time.Duration
		want    int
	}{
		{0, 0, 1},
		{1, 35 * time.Millisecond, 1},
		{50, time.Millisecond, 10},
		{50, 35 * time.Millisecond, 21},
		{3, 2 * time.Second, 75},
	} {
		if got := refreshSeconds(c.watches, c.took); got != c.want {
			t.Errorf("%d who watch pages of %s read them every %d s, want %d", c.watches, c.took, got,
				c.want)
		}
	}
}
