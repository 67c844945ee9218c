package client_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// versionPlaces are where the lowest version of a language stands that programs read. The first
// place of a language is the one that its package manager reads.
var versionPlaces = []struct{ language, file, pattern string }{
	{"Go", "go.mod", `(?m)^go (\d+\.\d+)`},
	{"Go", "bench/go.mod", `(?m)^go (\d+\.\d+)`},
	{"Go", "deploy/go.mod", `(?m)^go (\d+\.\d+)`},
	{"Python", "clients/python/pyproject.toml", `(?m)^requires-python = ">=(.*)"$`},
	{"Python", "clients/python/build_wheel.py", `"Requires-Python: >=(.*)\\n"`},
	{"Python", "deploy/release/clients.go", `(?m)^Requires-Python: >=(.*)$`},
	{"Python", ".ci/clients", `mypy --strict --python-version (\S+)`},
	{"Python", ".ci/clients", `for lowest in python(\d+\.\d+) `},
	{"Node.js", "clients/typescript/package.json", `"engines": { "node": ">=(.*)" }`},
	{"Node.js", ".ci/clients", `process.versions.node\) < (\d+)`},
}

// promisingPages are those that have to say for readers which version a language needs.
var promisingPages = map[string][]string{
	"Go":      {"README.md", "docs/clients.md", "docs/start.md"},
	"Python":  {"clients/python/README.md", "docs/clients.md", "docs/start.md", "docs/workers.md"},
	"Node.js": {"clients/typescript/README.md", "docs/clients.md", "docs/start.md", "docs/workers.md"},
}

var namedVersion = regexp.MustCompile(`\b(Go|Python|Node\.js)\s(\d+(?:\.\d+)*)`)

// versionsOf returns the versions that a text names of each language.
func versionsOf(text string) map[string][]string {
	named := map[string][]string{}
	for _, m := range namedVersion.FindAllStringSubmatch(text, -1) {
		named[m[1]] = append(named[m[1]], m[2])
	}
	return named
}

// TestLowestVersions: package managers, checks and pages promise the same lowest version of each
// language.
func TestLowestVersions(t *testing.T) {
	t.Parallel()
	lowest := map[string]string{}
	for _, p := range versionPlaces {
		text, err := os.ReadFile(filepath.Join("..", p.file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(p.pattern).FindSubmatch(text)
		if found == nil {
			t.Errorf("%s has no version of %s", p.file, p.language)
			continue
		}
		if lowest[p.language] == "" {
			lowest[p.language] = string(found[1])
		}
		if got := string(found[1]); got != lowest[p.language] {
			t.Errorf("%s has %s %s, and the package %s", p.file, p.language, got, lowest[p.language])
		}
	}
	pages := []string{"../README.md"}
	for _, pattern := range []string{"../docs/*.md", "../clients/*/README.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		pages = append(pages, files...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		page, named := filepath.ToSlash(strings.TrimPrefix(page, "../")), versionsOf(string(text))
		for language, want := range lowest {
			if slices.Contains(promisingPages[language], page) && len(named[language]) == 0 {
				t.Errorf("%s does not say which %s is needed", page, language)
			}
			for _, got := range named[language] {
				if got != want {
					t.Errorf("%s has %s %s, and the package %s", page, language, got, want)
				}
			}
		}
	}
	named := versionsOf("with Python\n3.9, Node.js 20 and Go 1.26.1, not Python 2 or Gopher 3")
	if got := named["Python"]; !slices.Equal(got, []string{"3.9", "2"}) || named["Go"][0] != "1.26.1" {
		t.Errorf("a text names %v", named)
	}
}
