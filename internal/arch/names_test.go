package arch

import (
	"go/ast"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words for which the field has others, with these (docs/glossary.md).
var privateWords = map[string]string{"most": "max", "usual": "default", "fewest": "min",
	"beat": "heartbeat", "beats": "heartbeat", "duty": "maintenance", "room": "contract, height …",
	"door": "port", "know": "load", "knows": "is known",
	"tell": "notify", "tells": "notifies", "told": "notified",
	"hear": "update", "heard": "updated", "news": "updates", "woken": "wakes", "landed": "stored",
	"begun": "started", "judge": "decide", "judged": "decided", "flaw": "error", "flaws": "errors",
	"patience": "timeout", "patient": "keeps waiting", "patiently": "waiting", "keyed": "entry",
	"audience": "subscriptions", "attachment": "hook",
	"unlisted": "other", "awaited": "required", "freed": "released", "taking": "submission",
	"takings": "submissions", "endings": "finishes", "rewrite": "update", "soon": "due",
	"holding": "abandoned or in use", "tally": "count or checklist",
	"demand": "query", "demands": "queries",
	"duties": "leader roles", "away": "unavailable", "takable": "claimable",
	"enough": "stop", "brought": "got or read",
	"turn": "number, limit …", "turns": "numbers, limit …", "crowded": "queues to fold, busy …",
	"gave": "canceled", "remember": "record or cache", "remembers": "records or caches",
	"remembered": "cached or recorded", "settled": "done or finished",
	"complain": "report", "complains": "reports", "pretend": "simulate",
	"impatient": "limited", "spoil": "corrupt",
	"foresees": "reserves", "affordable": "fit",
	"held": "abandoned, in use or locked", "way": "mode", "ways": "modes", "dry": "dry run",
	"story": "comment", "letter": "dead letter", "letters": "dead letters"}

// isPrivate reports whether one of the words of a name is private. Dead letters and dry runs are
// words of the field.
func isPrivate(words []string, at int) bool {
	switch words[at] {
	case "letter", "letters":
		return at == 0 || words[at-1] != "dead"
	case "dry":
		return at+1 == len(words) || words[at+1] != "run"
	}
	return privateWords[words[at]] != ""
}

// isBoundBehind reports whether a name of a constant has max or min behind its first word, and is
// no default of such a bound.
func isBoundBehind(name *ast.Ident, words []string) bool {
	isConstant := (name.Obj != nil) && (name.Obj.Kind == ast.Con) && (words[0] != "default")
	return isConstant && (slices.Index(words, "max") > 0 || slices.Index(words, "min") > 0)
}

// TestNames checks that no name of Go has a private word, in tests and in bench too, and that
// constants are named maxX and minX.
func TestNames(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, f := range loadAll(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			name := declaredBy(n)
			if name == nil {
				return true
			}
			checked++
			words := wordsOf(name.Name)
			if isBoundBehind(name, words) {
				t.Errorf("%s: %s does not begin with max or min", f.position(name), name.Name)
			}
			for i, word := range words {
				if isPrivate(words, i) {
					t.Errorf("%s: %s has the word %q, which is %s here", f.position(name),
						name.Name, word, privateWords[word])
				}
			}
			return true
		})
	}
	if checked < 1000 {
		t.Errorf("found %d names", checked)
	}
}

// TestFileNames checks that no file and no folder of the code has a private word in its name, in
// tests too. A name in testdata may have any word.
func TestFileNames(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, dir := range []string{"bench", "client", "cmd", "deploy", "internal", "torture"} {
		err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			checked++
			base, _, _ := strings.Cut(filepath.Base(path), ".")
			words := strings.FieldsFunc(base, func(r rune) bool { return r == '_' || r == '-' })
			for i, word := range words {
				if isPrivate(words, i) {
					t.Errorf("%s has the word %q, which is %s here", path, word, privateWords[word])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 500 {
		t.Errorf("found %d files", checked)
	}
}

// declaredBy returns the name that a node declares, nil for none. Methods are in no scope.
func declaredBy(n ast.Node) *ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv != nil {
			return n.Name
		}
	case *ast.Ident:
		if n.Obj != nil && n.Obj.Pos() == n.Pos() {
			return n
		}
	}
	return nil
}

// wordsOf returns the words of a name in lower case: max and Attempts of maxAttempts.
func wordsOf(name string) []string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
