package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// canonical is what PEP 440 says a version looks like that no program writes differently.
var canonical = regexp.MustCompile(`^([1-9][0-9]*!)?(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*` +
	`((a|b|rc)(0|[1-9][0-9]*))?(\.post(0|[1-9][0-9]*))?(\.dev(0|[1-9][0-9]*))?` +
	`(\+[a-z0-9]+(\.[a-z0-9]+)*)?$`)

// TestPythonVersion has versions in the order of Go, which pip has too.
func TestPythonVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ version, want string }{
		{"0.0.0-20260102030405-0123456789ab", "0.0.0.dev20260102030405+g0123456789ab"},
		{"1.2.3-alpha.1", "1.2.3a1"},
		{"1.2.3-beta.2", "1.2.3b2"},
		{"1.2.3-rc.1", "1.2.3rc1"},
		{"1.2.3-rc.1.0.20260102030405-0123456789ab", "1.2.3rc2.dev20260102030405+g0123456789ab"},
		{"1.2.3-rc2", "1.2.3rc2"},
		{"1.2.3-rc.09", "1.2.3rc9"},
		{"1.2.3", "1.2.3"},
		{"1.2.4-0.20260102030405-012345678912", "1.2.4.dev20260102030405+g012345678912"},
		{"10.20.30", "10.20.30"},
	} {
		got, err := pythonVersion(c.version)
		if err != nil || got != c.want || !canonical.MatchString(got) {
			t.Errorf("%s is %q, want %s: %v", c.version, got, c.want, err)
		}
	}
	for _, version := range []string{"", "1.2", "(devel)", "1.2.3-demo.1", "1.2.3-rc", "1.2.3+dirty",
		"1.2.3-demo.0.20260102030405-0123456789ab", "1.2.3-rc.99999999999999999999"} {
		if got, err := pythonVersion(version); err == nil {
			t.Errorf("%q is %s", version, got)
		}
	}
}

// TestStamp: a version that is not there, or twice, is an error and no package without its version.
func TestStamp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"v = 0.0.0.dev0": "v = 1.2.3", "v": "", "": "",
		"0.0.0.dev0 0.0.0.dev0": ""} {
		files := []file{{name: "other", text: []byte("0.0.0.dev0")}, {name: "here", text: []byte(text)}}
		err := stamp(files, "here", "0.0.0.dev0", "1.2.3")
		if got := string(files[1].text); want != "" && (err != nil || got != want) {
			t.Errorf("%q is %q, want %q: %v", text, got, want, err)
		}
		if want == "" && (err == nil || !strings.Contains(err.Error(), "no here with")) {
			t.Errorf("%q: %v", text, err)
		}
		if string(files[0].text) != "0.0.0.dev0" {
			t.Error("another file was changed")
		}
	}
}

// TestLinksOfClients: the READMEs of the packages lead to pages of a server, each of which the
// repository has, and to nothing beside the package.
func TestLinksOfClients(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"python", "typescript"} {
		text, err := os.ReadFile(filepath.Join("../../clients", name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		files := []file{{name: "README.md", text: text}}
		linkServed(files)
		text = files[0].text
		if strings.Contains(string(text), "](..") {
			t.Errorf("the README for %s has a link to what is not in the package", name)
		}
		links := regexp.MustCompile(`\(`+servedPages+`(?:/([\w-]+))?(?:#[\w-]+)?\)`).FindAllStringSubmatch(
			string(text), -1)
		for _, link := range links {
			if link[1] == "" {
				continue // the list of all pages
			}
			if _, err := os.Stat(filepath.Join("../../docs", link[1]+".md")); err != nil {
				t.Errorf("the README for %s has %s: %v", name, link[0], err)
			}
		}
		if len(links) < 5 {
			t.Errorf("the README for %s has the links %v", name, links)
		}
	}
}
