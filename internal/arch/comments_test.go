package arch

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestCommentsNameWhatTheyDescribe checks that a comment of a declaration which begins with a word
// in lower case begins with the declared name: otherwise it is the comment of a name that was
// changed. Comments that begin with a capital letter are sentences of their own.
func TestCommentsNameWhatTheyDescribe(t *testing.T) {
	t.Parallel()
	for _, f := range load(t) {
		for _, d := range declared(f.ast) {
			first := firstWord(d.doc)
			r, _ := utf8.DecodeRuneInString(first)
			if unicode.IsLower(r) && first != d.name.Name && first != d.name.Name+"s" {
				t.Errorf("%s: the comment of %s begins with %q", f.fset.Position(d.name.Pos()),
					d.name.Name, first)
			}
		}
	}
}

// declaration is a name with its comment.
type declaration struct {
	name *ast.Ident
	doc  *ast.CommentGroup
}

// declared returns the functions, types, variables and constants of a file that are declared alone
// and have a comment.
func declared(f *ast.File) (all []declaration) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, declaration{d.Name, d.Doc})
		case *ast.GenDecl:
			if d.Tok != token.IMPORT && len(d.Specs) == 1 {
				all = append(all, declaration{specName(d.Specs[0]), d.Doc})
			}
		}
	}
	return all
}

// specName returns the first name of a declaration.
func specName(s ast.Spec) *ast.Ident {
	if t, ok := s.(*ast.TypeSpec); ok {
		return t.Name
	}
	return s.(*ast.ValueSpec).Names[0]
}

// firstWord returns the first word of a comment without punctuation; empty without a comment.
func firstWord(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	words := strings.Fields(doc.Text())
	if len(words) == 0 {
		return ""
	}
	return strings.TrimRight(words[0], ",.:;")
}

// minComments and maxComments bound the comments of a hundred lines that are not empty.
const minComments, maxComments = 15, 20

// TestShareOfComments checks how many lines of the product are comments: of all of it, and without
// the SDK, whose comments are the documentation of its users. The command torture is a test.
func TestShareOfComments(t *testing.T) {
	t.Parallel()
	for _, part := range []struct {
		name string
		has  func(*file) bool
	}{
		{"the product", isProduct},
		{"the product without client", func(f *file) bool {
			return isProduct(f) && !strings.HasPrefix(f.path, "client/")
		}},
	} {
		comments, all := 0, 0
		for _, f := range load(t) {
			if part.has(f) {
				all += countLines(f.src, "")
				comments += countLines(f.src, "//")
			}
		}
		t.Logf("%s: %.2f %%", part.name, float64(comments)*100/float64(all))
		if share := comments * 100; share < minComments*all || share > maxComments*all {
			t.Errorf("%d of %d lines of %s are comments, want %d to %d %%", comments, all, part.name,
				minComments, maxComments)
		}
	}
}

// isProduct reports whether a file is part of what is released.
func isProduct(f *file) bool { return !f.test && !strings.HasPrefix(f.path, "torture/") }

// countLines counts the lines that begin with a text, and are not empty.
func countLines(src, begin string) (n int) {
	for line := range strings.Lines(src) {
		line = strings.TrimSpace(line)
		if line != "" && strings.HasPrefix(line, begin) {
			n++
		}
	}
	return n
}
