package docsite

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Path is the path of the first page, with which those of all pages begin.
const Path = "/docs"

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed style.css
var styleText []byte

//go:embed script.js
var scriptText []byte

// Config says what the site shows. All members are required.
type Config struct {
	Papers  fs.FS  // the documents, under their paths in the repository
	APIs    []API  // in the order in which users see them
	Style   []byte // a style sheet that comes before that of the site
	Icon    []byte // SVG
	Version string // of the binary
}

// API is one that has an OpenAPI document.
type API struct {
	Name     string // as in the path of its page
	Source   string // the path of the document in the repository
	Document []byte // in YAML
}

// Site serves the documents. It may be used by several goroutines.
type Site struct {
	config    Config
	templates map[string]*template.Template // by the name of the page
	documents []*document                   // those that have a page
	byPath    map[string]*document          // by their paths in the repository
	answers   sync.Map                      // a path of a page, to a func() *answer
	search    func() *index
	apis      []*apiDocument
	nav       []navGroup
}

// answer is what a path is answered with.
type answer struct {
	contentType string
	policy      string
	status      int
	body        []byte
	tag         string // of the body
}

// New makes the site. The documents are part of the program, so one that is wrong is a defect:
// New panics. It reads only the navigation; pages are made when they are asked for.
func New(c Config) *Site {
	s := &Site{config: c, templates: parsePages(), byPath: map[string]*document{}}
	for _, api := range c.APIs {
		s.apis = append(s.apis, newAPIDocument(s, api))
	}
	s.findDocuments()
	s.readNavigation()
	s.search = sync.OnceValue(s.makeIndex)
	return s
}

// parsePages reads the templates: each page fills the layout.
func parsePages() map[string]*template.Template {
	layout := template.Must(template.ParseFS(pageFiles, "pages/layout.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"document", "api", "search", "source", "missing"} {
		clone := template.Must(layout.Clone())
		all[name] = template.Must(clone.ParseFS(pageFiles, "pages/"+name+".html"))
	}
	return all
}

// The policies of answers: nothing of another source is loaded, nothing inline runs, no page frames
// another one. A picture that is opened by itself has its style inline.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	picturePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
)

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this path takes GET, HEAD", http.StatusMethodNotAllowed)
		return
	}
	a := s.answerOf(r)
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Security-Policy", a.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // kept, and asked for again: another version has other pages
	h.Set("ETag", a.tag)
	if a.status == http.StatusOK && strings.Contains(r.Header.Get("If-None-Match"), a.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// answerOf returns the answer to a request. Those that depend on the path alone are kept; there are
// as many as there are documents.
func (s *Site) answerOf(r *http.Request) *answer {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path == searchPath {
		return s.searchAnswer(r.URL.Query().Get("q"))
	}
	if made, found := s.answers.Load(path); found {
		return made.(func() *answer)()
	}
	create := s.maker(path)
	if create == nil {
		return s.page("missing", http.StatusNotFound, &view{Title: "Not found", Path: path})
	}
	made, _ := s.answers.LoadOrStore(path, sync.OnceValue(create))
	return made.(func() *answer)()
}

// maker returns what makes the answer of a path; nil where there is nothing.
func (s *Site) maker(path string) func() *answer {
	switch path {
	case Path + "/style.css":
		return file("text/css; charset=utf-8", slices.Concat(s.config.Style, styleText))
	case Path + "/script.js":
		return file("text/javascript; charset=utf-8", scriptText)
	case Path + "/icon.svg":
		return file("image/svg+xml", s.config.Icon)
	}
	for _, d := range s.documents {
		switch path {
		case d.url:
			return func() *answer { return s.documentPage(d) }
		case d.raw():
			return file("text/markdown; charset=utf-8", d.text())
		}
	}
	for _, a := range s.apis {
		if path == a.url {
			return func() *answer { return s.apiPage(a) }
		}
	}
	return s.sourceMaker(path)
}

// file makes the answer that is a file.
func file(contentType string, text []byte) func() *answer {
	return func() *answer { return newAnswer(http.StatusOK, contentType, text) }
}

// newAnswer makes an answer.
func newAnswer(status int, contentType string, body []byte) *answer {
	sum := sha256.Sum256(body)
	a := &answer{contentType: contentType, policy: pagePolicy, status: status, body: body,
		tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	if strings.HasPrefix(contentType, "image/") {
		a.policy = picturePolicy
	}
	return a
}

// view is what a page shows.
type view struct {
	Title   string
	Path    string // of the page
	Page    any    // for the template
	Content []heading
	Query   string // of a search
	Raw     string // where the page is as a file

	Before, After *navLink // in the order of the navigation

	// The members below are set by page.
	Nav     []navGroup
	Version string
}

// page makes the answer that is a page.
func (s *Site) page(name string, status int, v *view) *answer {
	v.Nav, v.Version = s.navOf(v.Path), s.config.Version
	var text bytes.Buffer
	if err := s.templates[name].Execute(&text, v); err != nil {
		panic(err) // the templates are part of this program, and tests show every page
	}
	return newAnswer(status, "text/html; charset=utf-8", text.Bytes())
}
