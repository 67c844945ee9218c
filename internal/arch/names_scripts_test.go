package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scriptLanguages are the languages besides Go whose names are checked, by the end of a file's
// name: what is no name in them. A regular expression of JavaScript stands after a sign that no
// value ends with.
var scriptLanguages = map[string]*regexp.Regexp{".py": pythonText, ".ts": scriptText,
	".js": scriptText, ".mjs": scriptText}

var (
	pythonText = regexp.MustCompile(`(?s)"""(?:\\.|.)*?"""|'''(?:\\.|.)*?'''|` +
		`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*`)
	scriptText = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|` +
		`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|` + "`(?:\\\\.|[^`\\\\])*`" +
		`|[=(,:!&|?]\s*/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n*\[])+/`)
	scriptName = regexp.MustCompile(`[A-Za-z_$][\w$]*`)
)

// publicScriptNames have a private word, with the reason why they keep it.
var publicScriptNames = map[string]string{
	"duties":         "a member of the admin API's JSON, which the clients call leader roles",
	"settled_at":     "a member of the admin API's JSON, which the clients call finished at",
	"settled_before": "a parameter of the admin API's URLs",
	"settled_from":   "a parameter of the admin API's URLs",
	"tell":           "a method of Python's files",
}

// TestScriptNames checks that no name of the clients in Python and TypeScript, and none of the
// scripts of the server's pages, has a private word, in tests too.
func TestScriptNames(t *testing.T) {
	t.Parallel()
	files, checked, used := 0, 0, map[string]bool{}
	for _, dir := range []string{"bench", "clients", "internal/console", "internal/docsite"} {
		err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && slices.Contains([]string{"node_modules", "dist"}, d.Name()) {
				return filepath.SkipDir
			}
			language := scriptLanguages[filepath.Ext(path)]
			if err != nil || language == nil {
				return err
			}
			src, err := os.ReadFile(path)
			files++
			names := scriptNames(string(src), language)
			checked += len(names)
			for _, name := range names {
				word := privateWordOf(name)
				used[name] = true
				if word != "" && publicScriptNames[name] == "" {
					t.Errorf("%s: %s has the word %q, which is %s here", path, name, word,
						privateWords[word])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range publicScriptNames {
		if !used[name] {
			t.Errorf("no script has the name %s any more", name)
		}
	}
	if files < 90 || checked < 5000 {
		t.Errorf("found %d files and %d names", files, checked)
	}
}

// TestScriptNamesAreFound checks what counts as a name of a script.
func TestScriptNamesAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ending, src, want string }{
		{".py", "max_most = 1  # usual\n", "max_most"},
		{".py", "def f(self, *, woken: bool) -> None:\n    \"\"\"Tells of \"usual\" room.\"\"\"\n",
			"def f self woken bool None"},
		{".py", "a = 'it\\'s told' + \"#\" + beats", "a beats"},
		{".ts", "/* told */ const toldAt = '\"'; // heard\nlet b = `most ${x}`", "const toldAt let b"},
		{".ts", "f(/[\"'/]\\//g, heard) / told", "f g heard told"},
		{".js", "a = b / c; usual / d", "a b c usual d"},
	} {
		got := strings.Join(scriptNames(c.src, scriptLanguages[c.ending]), " ")
		if got != c.want {
			t.Errorf("%s: names %q, want %q", c.src, got, c.want)
		}
	}
	for name, want := range map[string]string{"max_most": "most", "toldAt": "told", "MOST": "most",
		"_beats": "beats", "dry_run": "", "deadLetters": "", "almostAll": ""} {
		if got := privateWordOf(name); got != want {
			t.Errorf("%s has the private word %q, want %q", name, got, want)
		}
	}
}

// scriptNames returns the names of a script, in order, without what stands in comments and texts.
func scriptNames(src string, language *regexp.Regexp) []string {
	return scriptName.FindAllString(language.ReplaceAllString(src, " "), -1)
}

// privateWordOf returns the first private word of a name in camelCase, snake_case or CAPITALS; ""
// for none.
func privateWordOf(name string) string {
	if name == strings.ToUpper(name) {
		name = strings.ToLower(name)
	}
	words := wordsOf(strings.NewReplacer("_", " ", "$", " ").Replace(name))
	for i, word := range words {
		if isPrivate(words, i) {
			return word
		}
	}
	return ""
}
