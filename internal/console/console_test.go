package console

import (
	"strings"
	"testing"
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
