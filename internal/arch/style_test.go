package arch

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestConditions checks that && and || are not mixed without parentheses, and that an error is
// handled where it is found: no if asks for err == nil, alone or among other things. It may be a
// value that is returned or passed on, and a case of a switch. Files of tests may ask so, but not
// the packages that only tests import.
func TestConditions(t *testing.T) {
	t.Parallel()
	for _, f := range loadAll(t) {
		isTest := strings.HasSuffix(f.path, "_test.go")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if isMixed(n, n.X) || isMixed(n, n.Y) {
					t.Errorf("%s mixes && and || without parentheses", f.position(n))
				}
				if !isTest && isLogical(n.Op) && (isNoError(n.X) || isNoError(n.Y)) {
					t.Errorf("%s asks for no error among other things", f.position(n))
				}
			case *ast.IfStmt:
				if !isTest && isNoError(n.Cond) {
					t.Errorf("%s asks for no error, and not for the error", f.position(n))
				}
			}
			return true
		})
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
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	return ok && b.Op == token.EQL && isNamed(b.Y, "nil") && isErrorName(b.X)
}

// TestTablesHaveAnOrder checks that no table of steps is a map whose loop may return: what it does
// first, and which of two errors it returns, would be another each time.
func TestTablesHaveAnOrder(t *testing.T) {
	t.Parallel()
	for _, f := range loadAll(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if ok && isMapLiteral(loop.X) && returns(loop.Body) {
				t.Errorf("%s returns from a loop over a map, which has no order", f.position(n))
			}
			return true
		})
	}
}

// isMapLiteral reports whether an expression is a map that stands in the source.
func isMapLiteral(e ast.Expr) bool {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return false
	}
	_, ok = literal.Type.(*ast.MapType)
	return ok
}

// returns reports whether a block may end its function.
func returns(block *ast.BlockStmt) (found bool) {
	ast.Inspect(block, func(n ast.Node) bool {
		_, isReturn := n.(*ast.ReturnStmt)
		_, isFunction := n.(*ast.FuncLit) // whose returns are its own
		found = found || isReturn
		return !isFunction
	})
	return found
}

// TestErrorsAreCompared checks that errors are compared with errors.Is: a comparison with
// == misses an error that was wrapped.
func TestErrorsAreCompared(t *testing.T) {
	t.Parallel()
	for _, f := range loadAll(t) {
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

// isErrorName reports whether an expression is a variable or a member that is named as an error.
func isErrorName(e ast.Expr) bool {
	if member, ok := e.(*ast.SelectorExpr); ok {
		e = member.Sel
	}
	id, ok := e.(*ast.Ident)
	return ok && (strings.EqualFold(id.Name, "err") || strings.HasSuffix(id.Name, "Err"))
}

func (f *file) position(n ast.Node) string {
	p := f.fset.Position(n.Pos())
	p.Filename = f.path
	return p.String()
}

// TestOffersAreDeclared checks that no interface of the module is asked of a value by a type
// assertion: a part that loses a method would compile, and silently offer less. What a part may
// offer is a member of a struct, or a method that returns nil.
func TestOffersAreDeclared(t *testing.T) {
	t.Parallel()
	files := load(t)
	ports := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && isInterface(spec.Type) {
				ports[module+"/"+f.dir+"."+spec.Name.Name] = true
			}
			return true
		})
	}
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			a, ok := n.(*ast.TypeAssertExpr)
			if ok && (isInterface(a.Type) || ports[f.typeName(a.Type)]) {
				t.Errorf("%s asserts an interface", f.position(n))
			}
			return true
		})
	}
}

func isInterface(e ast.Expr) bool {
	_, ok := e.(*ast.InterfaceType)
	return ok
}

// typeName returns the name of a type with the path of its package; "" for one without a name.
func (f *file) typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return module + "/" + f.dir + "." + e.Name
	case *ast.SelectorExpr:
		for _, path := range f.imports {
			if pkg, ok := e.X.(*ast.Ident); ok && strings.HasSuffix(path, "/"+pkg.Name) {
				return path + "." + e.Sel.Name
			}
		}
	}
	return ""
}

// maxColumns is how long a line may be, a tab counted as four.
const maxColumns = 100

// TestLines checks the length of lines. A line may be longer where a text stands in it
// that is not to be torn apart.
func TestLines(t *testing.T) {
	t.Parallel()
	for _, f := range load(t) {
		for i, line := range strings.Split(f.src, "\n") {
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
