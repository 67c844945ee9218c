package arch

import (
	"go/ast"
	"go/token"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestConditions checks that && and || are not mixed without parentheses, and that an
// error is handled where it is found: no condition asks for err == nil to go on inside.
func TestConditions(t *testing.T) {
	t.Parallel()
	for _, f := range load(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if isMixed(n, n.X) || isMixed(n, n.Y) {
					t.Errorf("%s mixes && and || without parentheses", f.position(n))
				}
				if !f.test && isLogical(n.Op) && (isNoError(n.X) || isNoError(n.Y)) {
					t.Errorf("%s asks for no error among other things", f.position(n))
				}
			case *ast.IfStmt:
				if !f.test && isNoError(n.Cond) && !leaves(n.Body) {
					t.Errorf("%s indents the path without an error", f.position(n))
				}
			}
			return true
		})
	}
}

// leaves reports whether a block ends by leaving what it stands in, as the success of a loop
// of attempts does.
func leaves(block *ast.BlockStmt) bool {
	if len(block.List) == 0 {
		return false
	}
	switch block.List[len(block.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	default:
		return false
	}
}

func isLogical(op token.Token) bool { return op == token.LAND || op == token.LOR }

// isMixed reports whether an operand of a logical expression is one of the other operator
// that stands without parentheses.
func isMixed(outer *ast.BinaryExpr, operand ast.Expr) bool {
	inner, ok := operand.(*ast.BinaryExpr)
	return ok && isLogical(outer.Op) && isLogical(inner.Op) && outer.Op != inner.Op
}

// isNoError reports whether an expression is err == nil.
func isNoError(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && b.Op == token.EQL && isNamed(b.Y, "nil") && isErrorName(b.X)
}

// TestErrorsAreCompared checks that errors are compared with errors.Is: a comparison with
// == misses an error that was wrapped.
func TestErrorsAreCompared(t *testing.T) {
	t.Parallel()
	for _, f := range load(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if ok && (b.Op == token.EQL || b.Op == token.NEQ) && isErrorName(b.X) &&
				!isNamed(b.Y, "nil") {
				t.Errorf("%s compares an error with %s", f.position(n), b.Op)
			}
			return true
		})
	}
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func isErrorName(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "err" || strings.HasSuffix(id.Name, "Err"))
}

func (f *file) position(n ast.Node) string {
	p := f.fset.Position(n.Pos())
	p.Filename = f.path
	return p.String()
}

// maxColumns is how long a line may be, a tab counted as four.
const maxColumns = 100

// TestLines checks the length of lines. A line may be longer where a text stands in it
// that is not to be torn apart.
func TestLines(t *testing.T) {
	t.Parallel()
	for _, f := range load(t) {
		src, err := os.ReadFile("../../" + f.path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(src), "\n") {
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > maxColumns && !strings.ContainsAny(line, "\"`") &&
				!strings.Contains(line, "://") && !f.inText(i+1) {
				t.Errorf("%s:%d has %d columns, more than %d", f.path, i+1, columns, maxColumns)
			}
		}
	}
}

// inText reports whether a line stands within a text of several lines.
func (f *file) inText(line int) bool {
	found := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if ok && f.fset.Position(lit.Pos()).Line <= line &&
			line <= f.fset.Position(lit.End()).Line {
			found = true
		}
		return !found
	})
	return found
}
