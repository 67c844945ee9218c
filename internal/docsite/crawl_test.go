package docsite

import (
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	attribute = regexp.MustCompile(`<(\w+)[^>]*? (?:href|src|action)="([^"]*)"`)
	idOf      = regexp.MustCompile(` id="([^"]*)"`)
)

// ownModules are folders of the repository that no binary can carry, as they are modules of their
// own. Links to them are text on the site.
var ownModules = []string{"bench", "deploy"}

// Every page is reached from the first one, every link and anchor of every page leads somewhere,
// and nothing is loaded from elsewhere.
func TestCrawl(t *testing.T) {
	t.Parallel()
	ids, waiting := map[string][]string{}, []string{Path}
	type use struct{ from, to, anchor string }
	var anchors []use
	for len(waiting) > 0 {
		at := waiting[0]
		waiting = waiting[1:]
		if ids[at] != nil {
			continue
		}
		w := get(t, at)
		if w.Code != 200 {
			t.Fatalf("%s answers %d", at, w.Code)
		}
		ids[at] = []string{""}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		page := w.Body.String()
		for _, id := range idOf.FindAllStringSubmatch(page, -1) {
			if slices.Contains(ids[at], id[1]) {
				t.Errorf("%s has the id %s twice", at, id[1])
			}
			ids[at] = append(ids[at], id[1])
		}
		for _, one := range attribute.FindAllStringSubmatch(page, -1) {
			to, anchor, _ := strings.Cut(html.UnescapeString(one[2]), "#")
			switch {
			case strings.HasPrefix(to, "https://") && one[1] == "a":
				continue // a reader may go there; nothing is loaded
			case strings.HasPrefix(to, "/openapi/"), strings.HasPrefix(to, searchPath):
				continue
			case to == "":
				to = at
			case to != Path && !strings.HasPrefix(to, Path+"/"):
				t.Errorf("%s has a <%s> of %s", at, one[1], to)
				continue
			}
			anchors = append(anchors, use{at, to, anchor})
			waiting = append(waiting, to)
		}
	}
	for _, u := range anchors {
		if !slices.Contains(ids[u.to], u.anchor) {
			t.Errorf("%s links to %s#%s, which is not there", u.from, u.to, u.anchor)
		}
	}
	for _, d := range world().documents {
		if ids[d.url] == nil {
			t.Errorf("no page links to %s", d.url)
		}
	}
	for _, a := range world().apis {
		if ids[a.url] == nil {
			t.Errorf("no page links to %s", a.url)
		}
	}
}

// Every link of the documents is the path of a file of the repository, with an anchor that is
// there, and leads to a page unless a release does not carry the file.
func TestLinksAreFiles(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	for _, d := range world().documents {
		for _, l := range d.rendered().links {
			if strings.Contains(l.to, "://") {
				continue
			}
			name, anchor, _ := strings.Cut(l.to, "#")
			file := l.from
			if name != "" {
				file = path.Join(path.Dir(l.from), name)
			}
			info, err := os.Stat(filepath.Join(root, file))
			if err != nil {
				t.Errorf("%s links to %s: %v", l.from, l.to, err)
				continue
			}
			if info.IsDir() && world().byPath[path.Join(file, "README.md")] != nil {
				file = path.Join(file, "README.md")
			}
			own := slices.Contains(ownModules, strings.Split(file, "/")[0])
			if (l.url == "") != own {
				t.Errorf("%s links to %s, which is %q on the site", l.from, l.to, l.url)
			}
			if anchor != "" && !slices.Contains(anchorsOf(t, filepath.Join(root, file)), anchor) {
				t.Errorf("%s links to %s, and the file has no such heading", l.from, l.to)
			}
		}
	}
}

var headingLine = regexp.MustCompile(`(?m)^#+ +(.*)$`)

// anchorsOf returns the anchors that a file in Markdown has where repositories are shown.
func anchorsOf(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, h := range headingLine.FindAllStringSubmatch(string(text), -1) {
		id := anchorOf(h[1])
		used[id]++
		if n := used[id]; n > 1 {
			id += "-" + string(rune('0'+n-1))
		}
		all = append(all, id)
	}
	return all
}

// Every document of the folder is on the site, and every guide is in the navigation.
func TestNavigation(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	more, err := filepath.Glob("../../docs/reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, group := range world().nav {
		for _, l := range group.Links {
			named = append(named, l.Path)
		}
	}
	for _, file := range append(files, more...) {
		url := documentURL(strings.TrimPrefix(filepath.ToSlash(file), "../../"))
		if !slices.Contains(named, url) {
			t.Errorf("%s is not in the navigation", url)
		}
	}
	page := get(t, "/docs/relay").Body.String()
	if !strings.Contains(page, `<a href="/docs/relay" aria-current="page">Relay</a>`) {
		t.Error("the page of Relay does not show where one is")
	}
}

// Headings have the anchors that links to files rely on.
func TestAnchors(t *testing.T) {
	t.Parallel()
	for heading, want := range map[string]string{
		"Start, stop, health":            "start-stop-health",
		"`max_attempts` by PUT":          "max_attempts-by-put",
		"What is exact, and what is not": "what-is-exact-and-what-is-not",
		"A – b":                          "a--b",
	} {
		if got := anchorOf(heading); got != want {
			t.Errorf("%q has the anchor %q, want %q", heading, got, want)
		}
	}
}
