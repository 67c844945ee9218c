package docsite

import (
	"slices"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// firstPage is the document that is the first page. Its lists are the navigation: the first link of
// each item is a page, under the heading before the list.
const firstPage = "docs/README.md"

// navGroup is a part of the navigation.
type navGroup struct {
	Name  string
	Links []navLink
}

// navLink is a page that the navigation names.
type navLink struct {
	Text, Path string
	Current    bool
}

// readNavigation reads the first page.
func (s *Site) readNavigation() {
	d := s.byPath[firstPage]
	if d == nil {
		panic("docsite: there is no " + firstPage)
	}
	src := d.text()
	tree := markdown.Parser().Parse(text.NewReader(src))
	s.nav = []navGroup{{Links: []navLink{{Text: "Overview", Path: Path}}}}
	for n := tree.FirstChild(); n != nil; n = n.NextSibling() {
		switch n.Kind() {
		case ast.KindHeading:
			if n.(*ast.Heading).Level == 2 {
				s.nav = append(s.nav, navGroup{Name: plain(n, src)})
			}
		case ast.KindList:
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				if l := firstLink(item); l != nil {
					group := &s.nav[len(s.nav)-1]
					group.Links = append(group.Links, navLink{Text: plain(l, src),
						Path: s.resolve(firstPage, string(l.Destination))})
				}
			}
		}
	}
}

// firstLink returns the first link below a node, or nil.
func firstLink(n ast.Node) *ast.Link {
	if l, ok := n.(*ast.Link); ok {
		return l
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if l := firstLink(c); l != nil {
			return l
		}
	}
	return nil
}

// navOf returns the navigation as a page shows it.
func (s *Site) navOf(path string) []navGroup {
	all := make([]navGroup, 0, len(s.nav))
	for _, group := range s.nav {
		links := slices.Clone(group.Links)
		for i := range links {
			links[i].Current = links[i].Path == path
		}
		all = append(all, navGroup{group.Name, links})
	}
	return all
}

// neighbours returns the pages before and after one in the navigation; nil where there is none.
func (s *Site) neighbours(path string) (before, after *navLink) {
	var all []navLink
	for _, group := range s.nav {
		all = append(all, group.Links...)
	}
	at := slices.IndexFunc(all, func(l navLink) bool { return l.Path == path })
	if at > 0 {
		before = &all[at-1]
	}
	if at >= 0 && at+1 < len(all) {
		after = &all[at+1]
	}
	return before, after
}
