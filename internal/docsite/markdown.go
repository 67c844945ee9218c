package docsite

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A document becomes a page in these steps:
//
//	text ─▶ parse ─▶ tree ─▶ resolve links, collect headings and sections ─▶ render ─▶ HTML
//
// Documents are written to be read as files too, so they link to files: a link to what the site
// carries becomes an address of the site, with the same headings, and any other is left as text.

// markdown reads and writes the documents. HTML in them is left out, but for the comments that
// enclose tabs.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(),
		parser.WithASTTransformers(util.Prioritized(tabFinder{}, 100))),
	goldmark.WithRendererOptions(html.WithXHTML(),
		renderer.WithNodeRenderers(util.Prioritized(nodeRenderer{}, 100))),
)

// render makes the page of a document.
func (s *Site) render(d *document) *rendered {
	r, src := &rendered{title: d.file}, d.text()
	tree := markdown.Parser().Parse(text.NewReader(src),
		parser.WithContext(parser.NewContext(parser.WithIDs(&headingIDs{}))))
	s.resolveLinks(d, tree, r)
	for n := tree.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		switch {
		case !ok:
		case h.Level == 1:
			r.title = plain(h, src)
		case h.Level <= 3:
			r.content = append(r.content, heading{h.Level, headingID(h), plain(h, src)})
		}
	}
	r.sections = sectionsOf(d, src, r.title, tree)
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, src, tree); err != nil {
		panic(err) // the files are part of this program
	}
	r.html = template.HTML(frameTables(out.String()))
	return r
}

// frameTables puts each table into an element that scrolls, and that keys can scroll too. In what
// is no table the brackets are escaped.
func frameTables(page string) string {
	return strings.NewReplacer("<table>", `<div class="table" tabindex="0" role="region" `+
		`aria-label="Table"><table>`, "</table>", "</table></div>").Replace(page)
}

// resolveLinks gives the links and pictures of a document their addresses on the site. What a link
// names that is not carried is shown as text.
func (s *Site) resolveLinks(d *document, tree ast.Node, r *rendered) {
	var gone []*ast.Link
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			to := string(n.Destination)
			url := s.resolve(d.file, to)
			r.links = append(r.links, link{d.file, to, url})
			if url == "" {
				gone = append(gone, n)
			}
			n.Destination = []byte(url)
			s.nameDocument(d, n, to)
		case *ast.Image:
			to := string(n.Destination)
			url := s.resolve(d.file, to)
			r.links = append(r.links, link{d.file, to, url})
			n.Destination = []byte(url)
		}
		return ast.WalkContinue, nil
	})
	for _, l := range gone {
		for c := l.FirstChild(); c != nil; c = l.FirstChild() {
			l.Parent().InsertBefore(l.Parent(), l, c)
		}
		l.Parent().RemoveChild(l.Parent(), l)
	}
}

// nameDocument gives a link whose text is the path of a document the title of that in its place.
func (s *Site) nameDocument(from *document, l *ast.Link, to string) {
	only, ok := l.FirstChild().(*ast.Text)
	file, _, _ := strings.Cut(to, "#")
	if !ok || l.ChildCount() != 1 || string(only.Value(from.text())) != file {
		return
	}
	if d := s.byPath[path.Join(path.Dir(from.file), file)]; d != nil {
		l.ReplaceChild(l, only, ast.NewString([]byte(template.HTMLEscapeString(d.title()))))
	}
}

// plain returns the text of a node, without marks.
func plain(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(src))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		case *ast.RawHTML, *ast.HTMLBlock:
			return ast.WalkSkipChildren, nil
		default:
			isBlock := n.Type() == ast.TypeBlock
			if entering && isCode(n) {
				b.Write(n.Lines().Value(src))
			}
			if !entering && isBlock {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// isCode reports whether a node is a block of code.
func isCode(n ast.Node) bool {
	return n.Kind() == ast.KindFencedCodeBlock || n.Kind() == ast.KindCodeBlock
}

// headingIDs gives headings the ids that links to files in Markdown rely on: letters, digits, - and
// _ stay, blanks become -, anything else is left out, and a second one gets a number.
type headingIDs struct{ used map[string]int }

// Generate implements parser.IDs.
func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	id := anchorOf(string(value))
	if h.used == nil {
		h.used = map[string]int{}
	}
	n := h.used[id]
	h.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put implements parser.IDs.
func (h *headingIDs) Put([]byte) {}

// anchorOf returns the id of a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// headingID returns the id of a heading.
func headingID(h *ast.Heading) string {
	id, _ := h.AttributeString("id")
	text, _ := id.([]byte)
	return string(text)
}

// nodeRenderer writes what differs from what goldmark writes: headings that can be linked to, and
// code in colours.
type nodeRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (nodeRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, writeHeading)
	r.Register(ast.KindFencedCodeBlock, writeCode)
	r.Register(ast.KindCodeBlock, writeCode)
	r.Register(ast.KindHTMLBlock, writeNothing)
	r.Register(ast.KindRawHTML, writeNothing)
	r.Register(kindTabs, writeTabs)
	r.Register(kindTab, writeTab)
}

func writeHeading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	h := n.(*ast.Heading)
	id := template.HTMLEscapeString(headingID(h))
	switch {
	case entering:
		_, _ = fmt.Fprintf(w, `<h%d id="%s">`, h.Level, id)
	case h.Level == 1:
		_, _ = w.WriteString("</h1>\n")
	default:
		_, _ = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to this section">#</a></h%d>`+
			"\n", id, h.Level)
	}
	return ast.WalkContinue, nil
}

func writeCode(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if fenced, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(fenced.Language(src))
	}
	_, _ = w.WriteString(string(codeBlock(language, string(n.Lines().Value(src)))))
	return ast.WalkSkipChildren, nil
}

// codeBlock returns a block of code, which keys can scroll.
func codeBlock(language, code string) template.HTML {
	return `<div class="code"><pre tabindex="0"><code>` + highlight(language, code) +
		"</code></pre></div>\n"
}

func writeNothing(util.BufWriter, []byte, ast.Node, bool) (ast.WalkStatus, error) {
	return ast.WalkSkipChildren, nil
}
