package arch

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reference is a name of a package, perhaps with a member, such as store.Selector.After. A name in
// capitals stands for one that a user chooses, as in schedules.NAME.
var reference = regexp.MustCompile(
	`(?:^|[^\w./-])([a-z]\w*)\.([A-Z]\w*[a-z]\w*)(?:\.([A-Z]\w*))?`)

// codeSpan is a span in backticks of a paper.
var codeSpan = regexp.MustCompile("`[^`\n]+`")

// TestCommentsNameWhatExists checks that packages of the module have what the comments of the
// product, and the decisions in backticks, name of them: otherwise it was renamed or removed.
func TestCommentsNameWhatExists(t *testing.T) {
	t.Parallel()
	names, checked := declaredNames(load(t)), 0
	check := func(place, text string, others ...string) {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			declared := names[m[1]]
			if declared == nil || slices.Contains(others, m[1]) {
				continue
			}
			checked++
			if !declared[m[2]] || (m[3] != "" && !declared[m[3]]) {
				t.Errorf("%s: there is no %s", place, strings.TrimLeft(m[0], " (`\"["))
			}
		}
	}
	for _, f := range load(t) {
		if f.test || f.in("client") { // an example there has variables such as relay
			continue
		}
		var others []string
		for _, imported := range f.imports {
			if !under(imported, module) {
				others = append(others, path.Base(imported))
			}
		}
		for _, group := range f.ast.Comments {
			check(f.position(group), group.Text(), others...)
		}
	}
	for paper, text := range papers(t) {
		if strings.HasPrefix(paper, "docs/decisions/") {
			check(paper, strings.Join(codeSpan.FindAllString(text, -1), "\n"))
		}
	}
	if checked < 100 {
		t.Errorf("checked %d names", checked)
	}
}

// declaredNames returns the functions, types, values, methods and fields of the packages, by the
// name of the package.
func declaredNames(files []*file) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, f := range files {
		name := f.ast.Name.Name
		if strings.HasSuffix(f.path, "_test.go") || name == "main" {
			continue
		}
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id := declaredBy(n); id != nil {
				all[name][id.Name] = true
			}
			return true
		})
	}
	return all
}
