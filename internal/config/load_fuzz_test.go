package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/setting"
)

// FuzzLoad reads any bytes as the file's text: it never panics, and what is wrong has a name on a
// line of its own.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", "listen = \":8080\"\n[relay]\ntoken = \"hush\"", "relay.body_limit = \"1KiB\"",
		"a = 1_000_000_000_000_000_000_000",
		"[[relay]]\nv1 = true", "\"a.b\" = {c = [1, {d = 2}]}",
		"a.b.c.d.e.f.g.h.i = 1979-05-27T07:32:00Z", "x = nan\ny = 07:32:00",
		"store = \"postgres://u:p@h\"\ncontracts = [\"relay\", \"x\"]", "'' = ''", "relay = {}",
		"[tls]\ncert = 'a'", "a = \"\\uD800\"",
		"listen = \"\xff\"", "a = [[[[[[[[]]]]]]]]", "0\r", "[\n", "'a\u0085' = 1",
		"[schedules.a]\nstarts_at = 2026-03-01T12:00:00Z", "[schedules.'a.b']", "schedules = 1",
		"\ufefflisten = 1", "tls.key = \"\"\"\n-----BEGIN\"\"\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := loadDocument(data)
		if err == nil {
			return
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || len(e.Problems) == 0 {
			t.Fatalf("got %#v", err)
		}
		for _, p := range e.Problems {
			whole := p.Key == "" && p.Origin == "file fuzz.toml" &&
				strings.HasPrefix(p.Text, p.Origin+" ")
			named := strings.Contains(p.Text, setting.Quote(p.Key)) &&
				strings.Contains(p.Text, "("+p.Origin+")")
			missing := p.Origin == originDefault &&
				strings.Contains(p.Text, strconv.Quote(p.Key)+" is missing")
			if (!whole && !named && !missing) || strings.ContainsAny(p.Text, "\n\r") {
				t.Errorf("nothing is named: %+v", p)
			}
		}
	})
}

// loadDocument is Load with the file's text at hand.
func loadDocument(data []byte) error {
	all := new(loaded)
	l := newLoader(stores, all.groups(nil), all.schedules())
	l.document(data, "file fuzz.toml")
	return newError(append(l.problems, l.settings.check(l.failed)...))
}

// FuzzSecret puts one secret into every kind of text around it: it is never part of a problem.
func FuzzSecret(f *testing.F) {
	f.Add("relay.token = '", "'\nx = 1")
	f.Add("relay.token = ", "")
	f.Add("store = \"postgres://u:", "@h/db\"")
	f.Add("store = \"postgres://u:1/", "@h\"")
	f.Add("operator.token = [\"", "\"]")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "7316058429731605842973160584"
		start := strings.TrimLeft(before, " \t\r\n")
		known := strings.HasPrefix(start, "relay.token = ") ||
			strings.HasPrefix(start, "operator.token = ")
		if !known || strings.ContainsAny(before[1:], "\n\r#") || strings.Count(before, "=") > 1 {
			return
		}
		if err := loadDocument([]byte(before + secret + after)); err != nil &&
			strings.Contains(err.Error(), secret) {
			t.Errorf("shown: %v", err)
		}
	})
}
