package docsite

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Tabs stand in a document between two comments; a line that is bold begins one:
//
//	<!-- tabs -->
//	**curl**
//	… blocks …
//	**Python**
//	… blocks …
//	<!-- /tabs -->
//
// In the file they are read one after the other. On the page they are radio buttons, so that one is
// seen at a time without a script.

var (
	kindTabs = ast.NewNodeKind("Tabs")
	kindTab  = ast.NewNodeKind("Tab")
)

// tabsNode has the tabs of a group.
type tabsNode struct {
	ast.BaseBlock
	number int // on the page, from 1
}

// Kind implements ast.Node.
func (*tabsNode) Kind() ast.NodeKind { return kindTabs }

// Dump implements ast.Node.
func (n *tabsNode) Dump(src []byte, level int) { ast.DumpHelper(n, src, level, nil, nil) }

// tabNode has the blocks of a tab.
type tabNode struct {
	ast.BaseBlock
	name   string
	number int // in the group, from 1
}

// Kind implements ast.Node.
func (*tabNode) Kind() ast.NodeKind { return kindTab }

// Dump implements ast.Node.
func (n *tabNode) Dump(src []byte, level int) { ast.DumpHelper(n, src, level, nil, nil) }

// tabFinder puts what stands between the comments into tabs.
type tabFinder struct{}

// Transform implements parser.ASTTransformer.
func (tabFinder) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	var group *tabsNode
	var tab *tabNode
	groups := 0
	for n := doc.FirstChild(); n != nil; {
		next := n.NextSibling()
		switch comment, name := commentOf(n, reader.Source()), boldLine(n, reader.Source()); {
		case comment == "tabs":
			groups++
			group, tab = &tabsNode{number: groups}, nil
			doc.ReplaceChild(doc, n, group)
		case comment == "/tabs":
			doc.RemoveChild(doc, n)
			group = nil
		case group != nil && name != "":
			tab = &tabNode{name: name, number: group.ChildCount() + 1}
			group.AppendChild(group, tab)
			doc.RemoveChild(doc, n)
		case group != nil && tab != nil:
			tab.AppendChild(tab, n)
		}
		n = next
	}
}

// commentOf returns the text of a block that is a comment; "" for any other.
func commentOf(n ast.Node, src []byte) string {
	if n.Kind() != ast.KindHTMLBlock {
		return ""
	}
	text := strings.TrimSpace(string(n.Lines().Value(src)))
	text, isComment := strings.CutPrefix(text, "<!--")
	if !isComment {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(text, "-->"))
}

// boldLine returns the text of a paragraph that is bold as a whole; "" for any other.
func boldLine(n ast.Node, src []byte) string {
	if n.Kind() != ast.KindParagraph || n.ChildCount() != 1 {
		return ""
	}
	bold, ok := n.FirstChild().(*ast.Emphasis)
	if !ok || bold.Level != 2 {
		return ""
	}
	return plain(bold, src)
}

func writeTabs(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="languages">`)
	} else {
		_, _ = w.WriteString("</div>\n")
	}
	return ast.WalkContinue, nil
}

func writeTab(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		_, _ = w.WriteString("</div>\n")
		return ast.WalkContinue, nil
	}
	tab := n.(*tabNode)
	group := n.Parent().(*tabsNode).number
	id, checked := fmt.Sprintf("tab-%d-%d", group, tab.number), ""
	if tab.number == 1 {
		checked = " checked"
	}
	name := template.HTMLEscapeString(tab.name)
	_, _ = fmt.Fprintf(w, `<input type="radio" name="tabs-%d" id="%s" value="%s"%s>`+
		`<label for="%s">%s</label><div class="tab">`+"\n", group, id, name, checked, id, name)
	return ast.WalkContinue, nil
}
