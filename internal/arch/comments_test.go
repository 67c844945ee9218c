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

// TestShareOfComments checks how many lines of the product are comments.
func TestShareOfComments(t *testing.T) {
	t.Parallel()
	comments, all := 0, 0
	for _, f := range load(t) {
		if f.test {
			continue
		}
		for line := range strings.Lines(f.src) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "//") {
				comments++
			}
			if line != "" {
				all++
			}
		}
	}
	if share := comments * 100; share < minComments*all || share > maxComments*all {
		t.Errorf("%d of %d lines are comments, want %d to %d %%", comments, all, minComments,
			maxComments)
	}
}
