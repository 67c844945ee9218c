package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestConditions checks that && and || are not mixed without parentheses, and that an error is
// handled where it is found: no if or for asks for err == nil or whether any call has no error,
// alone or among other things. It may be a value that is returned or passed on, and a case of a
// switch. Files of tests may ask so, but not the packages that only tests import.
func TestConditions(t *testing.T) {
	t.Parallel()
	files := loadAll(t)
	results := singleResults(files)
	for _, f := range files {
		isTest := strings.HasSuffix(f.path, "_test.go")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if n, ok := n.(*ast.BinaryExpr); ok {
				if isMixed(n, n.X) || isMixed(n, n.Y) {
					t.Errorf("%s mixes && and || without parentheses", f.position(n))
				}
				isLogicalCode := !isTest && isLogical(n.Op)
				if isLogicalCode && (isNoError(n.X) || isNoError(n.Y) || f.asksACall(n, results)) {
					t.Errorf("%s asks for no error among other things", f.position(n))
				}
			}
			condition := conditionOf(n)
			if condition != nil && !isTest &&
				(isNoError(condition) || f.asksACall(condition, results)) {
				t.Errorf("%s asks for no error, and not for the error", f.position(n))
			}
			return true
		})
	}
}

// conditionOf returns the condition of an if or a for; nil for a node without one.
func conditionOf(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.IfStmt:
		return n.Cond
	case *ast.ForStmt:
		return n.Cond
	}
	return nil
}

func isLogical(op token.Token) bool { return op == token.LAND || op == token.LOR }

// isMixed reports whether an operand of a logical expression is one of the other operator that
// stands without parentheses.
func isMixed(outer *ast.BinaryExpr, operand ast.Expr) bool {
	inner, ok := operand.(*ast.BinaryExpr)
	return ok && isLogical(outer.Op) && isLogical(inner.Op) && outer.Op != inner.Op
}

// isNoError reports whether an expression is err == nil.
func isNoError(e ast.Expr) bool {
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	return ok && b.Op == token.EQL && isNamed(b.Y, "nil") && isErrorName(b.X)
}

// asksACall reports whether a condition asks, alone or among other things, whether a call has no
// error. Every result that is compared with nil counts as one, unless all functions of that name in
// the package, or else in the module, have another result, or the name is in otherResults.
func (f *file) asksACall(condition ast.Expr, results map[string]*functionResults) (asks bool) {
	ast.Inspect(condition, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.EQL || !isNamed(b.Y, "nil") {
			return true
		}
		if call, ok := ast.Unparen(b.X).(*ast.CallExpr); ok {
			name := calledName(call)
			known := results[f.dir+"."+name]
			if known == nil {
				known = results[name]
			}
			isOther := slices.Contains(otherResults, name) || (known != nil && !known.errors)
			asks = asks || !isOther
		}
		return true
	})
	return asks
}

// otherResults are functions of other modules whose result may be nil and is no error of the call.
// That of Err says whether a context has ended.
var otherResults = []string{"Err", "GetOperation", "Value"}

// calledName returns the name of a function that is called, without its package or receiver.
func calledName(call *ast.CallExpr) string {
	switch fn := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return fn.Sel.Name
	}
	return ""
}

// functionResults says of functions of one name that have one result whether it is an error in any
// of them.
type functionResults struct{ errors bool }

// singleResults returns what the functions, methods and fields of one result have, by their names
// in the module and by those after the folder of their package.
func singleResults(files []*file) map[string]*functionResults {
	all := map[string]*functionResults{}
	for _, f := range files {
		add := func(name string, fn *ast.FuncType) {
			if fn.Results == nil || fn.Results.NumFields() != 1 {
				return
			}
			for _, key := range []string{name, f.dir + "." + name} {
				if all[key] == nil {
					all[key] = &functionResults{}
				}
				isError := isNamed(fn.Results.List[0].Type, "error")
				all[key].errors = all[key].errors || isError
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name.Name, n.Type)
			case *ast.Field: // of a struct, an interface or parameters
				if fn, ok := n.Type.(*ast.FuncType); ok {
					for _, name := range n.Names {
						add(name.Name, fn)
					}
				}
			}
			return true
		})
	}
	return all
}

// TestErrorsAreCompared checks that errors are compared with errors.Is: a comparison with == misses
// an error that was wrapped.
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

// TestOffersAreDeclared checks that no interface is asked of a value by a type assertion or a case
// of a type switch: a part that loses a method would compile, and silently offer less. What a part
// may offer is a member of a struct, or a method that returns nil. Types of other modules count as
// interfaces unless valueTypes has them. The exceptions are in assertedInterfaces.
func TestOffersAreDeclared(t *testing.T) {
	t.Parallel()
	files := load(t)
	ports, used := map[string]bool{}, map[string]bool{}
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
			for _, asked := range assertedTypes(n) {
				own, name := f.typeName(asked), sourceName(asked)
				isForeign := strings.Contains(name, ".") && !strings.HasPrefix(own, module) &&
					!slices.Contains(valueTypes, name)
				if !isForeign && !isInterface(asked) && !ports[own] && name != "error" {
					continue
				}
				place := f.path + " " + name
				used[place] = true
				if assertedInterfaces[place] == "" {
					t.Errorf("%s asserts the interface %s", f.position(asked), name)
				}
			}
			return true
		})
	}
	for place := range assertedInterfaces {
		if !used[place] {
			t.Errorf("%s is no longer asserted", place)
		}
	}
}

// valueTypes are the types of other modules that assertions name and that are no interfaces.
var valueTypes = []string{"color.NRGBA", "json.Number", "slog.Level", "syscall.Signal",
	"syscall.WaitStatus", "tea.KeyPressMsg", "tea.WindowSizeMsg", "time.Duration", "time.Time"}

// assertedInterfaces are the interfaces that a file may assert, with the reason. All are those of
// the standard library or of a value that the same function has made.
var assertedInterfaces = map[string]string{
	"client/images_upload.go io.Seeker": "Images.Upload says what it does with a body that can " +
		"be read again, and what without",
	"internal/contract/forgerun/metrics.go prometheus.Counter": "the function has stored it",
	"internal/contract/images/picture/child.go fs.File": "a reader without a size is read as " +
		"it comes, with the same result",
	"internal/httpapi/call.go error":                      "a panic has a value of any type",
	"internal/telemetry/observers.go prometheus.Observer": "the function has stored it",
}

// assertedTypes returns the types that an assertion or the cases of a type switch name.
func assertedTypes(n ast.Node) (types []ast.Expr) {
	switch n := n.(type) {
	case *ast.TypeAssertExpr:
		if n.Type != nil { // else it is the head of a type switch
			types = append(types, n.Type)
		}
	case *ast.TypeSwitchStmt:
		for _, c := range n.Body.List {
			types = append(types, c.(*ast.CaseClause).List...)
		}
	}
	return types
}

// sourceName returns the name of a type as the source has it; "" for one that is made of others,
// such as a pointer.
func sourceName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			return pkg.Name + "." + e.Sel.Name
		}
	}
	return ""
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

// TestLines checks the length of lines. A line may be longer where a text stands in it that is not
// to be torn apart.
func TestLines(t *testing.T) {
	t.Parallel()
	for _, f := range loadAll(t) {
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
