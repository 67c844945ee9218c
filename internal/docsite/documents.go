package docsite

import (
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// Every file in Markdown that a release carries has a page, and its text beside it. What documents
// link to besides, such as examples and sources, is shown as it is. A link to anything else is no
// link on the site: resolve returns nothing for it, and a test follows all the others.

// document is a file in Markdown that has a page.
type document struct {
	file     string // its path in the repository
	url      string
	text     func() []byte // read each time
	rendered func() *rendered
}

// rendered is what has become of a document.
type rendered struct {
	title    string
	html     template.HTML
	content  []heading // of the second and third level
	sections []section
	links    []link
}

// heading is one of a page.
type heading struct {
	Level    int
	ID, Text string
}

// link is one of a document, for the test that follows them all.
type link struct {
	from string // a path in the repository
	to   string // as it is written
	url  string // on the site; "" where the release does not carry it
}

// findDocuments makes the documents of all files in Markdown.
func (s *Site) findDocuments() {
	err := fs.WalkDir(s.config.Papers, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(file) != ".md" {
			return err
		}
		one := &document{file: file, url: documentURL(file),
			text: func() []byte { return s.read(file) }}
		one.rendered = sync.OnceValue(func() *rendered { return s.render(one) })
		s.byPath[file] = one
		s.documents = append(s.documents, one)
		return nil
	})
	if err != nil {
		panic(err) // the files are part of this program
	}
}

// read returns the text of a file, which is part of this program.
func (s *Site) read(file string) []byte {
	text, err := fs.ReadFile(s.config.Papers, file)
	if err != nil {
		panic(err)
	}
	return text
}

// documentURL returns the path of the page of a file: docs/relay.md is /docs/relay, and the file
// README.md of a folder is the page of the folder.
func documentURL(file string) string {
	name := strings.TrimSuffix(file, ".md")
	if file != "README.md" {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "README"), "/")
	}
	name, isDocs := strings.CutPrefix(name, "docs")
	if !isDocs {
		name = "/" + strings.ToLower(name)
	}
	return Path + name
}

// raw returns the path at which the text of a document is.
func (d *document) raw() string {
	if d.url == Path {
		return Path + "/README.md"
	}
	return d.url + ".md"
}

// title returns the first heading of a document, as it is written.
func (d *document) title() string {
	for line := range strings.Lines(string(d.text())) {
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			return strings.TrimSpace(strings.ReplaceAll(heading, "`", ""))
		}
	}
	return d.file
}

// documentPage makes the page of a document.
func (s *Site) documentPage(d *document) *answer {
	r := d.rendered()
	v := &view{Title: r.title, Path: d.url, Page: r.html, Content: r.content, Raw: d.raw()}
	v.Before, v.After = s.neighbours(d.url)
	return s.page("document", http.StatusOK, v)
}

// resolve returns where a link of a file leads on the site; "" where the release does not carry
// what it names.
func (s *Site) resolve(from, to string) string {
	if strings.Contains(to, ":") || strings.HasPrefix(to, "/") {
		return to
	}
	name, anchor, hasAnchor := strings.Cut(to, "#")
	if hasAnchor {
		anchor = "#" + anchor
	}
	if name == "" {
		return anchor
	}
	file := path.Join(path.Dir(from), name)
	for _, a := range s.apis {
		if a.source == file {
			return a.url + anchor
		}
	}
	for _, candidate := range []string{file, path.Join(file, "README.md")} {
		if d := s.byPath[candidate]; d != nil {
			return d.url + anchor
		}
	}
	if _, err := fs.Stat(s.config.Papers, file); err != nil {
		return ""
	}
	return sourcePath + file
}

// sourcePath begins the paths of files that are no documents: sources and pictures.
const sourcePath = Path + "/source/"

// sourceMaker returns what makes the answer of a file or folder that documents link to; nil where
// there is none.
func (s *Site) sourceMaker(url string) func() *answer {
	name, found := strings.CutPrefix(url, sourcePath)
	if !found || !fs.ValidPath(name) || s.byPath[name] != nil {
		return nil
	}
	info, err := fs.Stat(s.config.Papers, name)
	if err != nil {
		return nil
	}
	if info.IsDir() {
		return func() *answer { return s.sourcePage(name, s.sourcesIn(name)) }
	}
	text := s.read(name)
	switch path.Ext(name) {
	case ".svg":
		return file("image/svg+xml", text)
	case ".png":
		return file("image/png", text)
	}
	return func() *answer { return s.sourcePage(name, []source{newSource(name, text)}) }
}

// source is a file as it is shown.
type source struct {
	Name string
	HTML template.HTML
}

func newSource(name string, text []byte) source {
	return source{name, highlight(strings.TrimPrefix(path.Ext(name), "."), string(text))}
}

// sourcesIn returns the files of a folder, what describes it first.
func (s *Site) sourcesIn(folder string) (all []source) {
	entries, err := fs.ReadDir(s.config.Papers, folder)
	if err != nil {
		panic(err) // the files are part of this program
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		name := path.Join(folder, e.Name())
		one := newSource(name, s.read(name))
		if e.Name() == "doc.go" {
			all = slices.Insert(all, 0, one)
		} else {
			all = append(all, one)
		}
	}
	return all
}

// sourcePage makes the page of a file or a folder.
func (s *Site) sourcePage(name string, files []source) *answer {
	v := &view{Title: name, Path: sourcePath + name, Page: files}
	return s.page("source", http.StatusOK, v)
}
