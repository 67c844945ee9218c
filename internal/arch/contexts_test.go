package arch

import (
	"go/ast"
	"slices"
	"testing"
)

// TestContextsAreUsed checks that a function which takes a context uses it: one that drops it
// promises its callers an end that does not come. A context may have no name where something else
// demands the parameter: in a function literal, in a method that an interface of the module has
// with a context, in one of a type that is declared to have an interface of another module, and in
// a function that its package uses as a value. It is written as _ then, so that a reader sees that
// it is dropped; the comment of the interface says why it may be.
func TestContextsAreUsed(t *testing.T) {
	t.Parallel()
	files := load(t)
	demanded := demandedContexts(files)
	checked := 0
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				taken, dropped := contextsOf(n.Type, n.Body)
				checked += taken
				if slices.Contains(dropped, "") {
					t.Errorf("%s: %s does not say that it drops its context: write it as _",
						f.position(n), n.Name.Name)
				}
				for _, name := range dropped {
					if (name == "_" || name == "") && f.isDemanded(n, demanded) {
						continue
					}
					t.Errorf("%s: %s takes the context %s and does not use it", f.position(n),
						n.Name.Name, name)
				}
			case *ast.FuncLit:
				_, dropped := contextsOf(n.Type, n.Body)
				for _, name := range dropped {
					if name != "_" && name != "" {
						t.Errorf("%s: a function takes the context %s and does not use it",
							f.position(n), name)
					}
				}
			}
			return true
		})
	}
	if checked < 1000 {
		t.Errorf("found %d contexts", checked)
	}
}

// contextsOf returns how many contexts a function takes, and the names of those that its body does
// not use; "" is one without a name. A function without a body uses all.
func contextsOf(fn *ast.FuncType, body *ast.BlockStmt) (taken int, dropped []string) {
	for _, field := range fn.Params.List {
		if !isContext(field.Type) {
			continue
		}
		taken += max(1, len(field.Names))
		if body == nil {
			continue
		}
		if len(field.Names) == 0 {
			dropped = append(dropped, "")
		}
		for _, name := range field.Names {
			if name.Name == "_" || !isUsed(name, body) {
				dropped = append(dropped, name.Name)
			}
		}
	}
	return taken, dropped
}

// isContext reports whether a type is context.Context.
func isContext(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && isNamed(sel.X, "context") && sel.Sel.Name == "Context"
}

// isUsed reports whether a parameter is read in a body.
func isUsed(param *ast.Ident, body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || (ok && id.Obj != nil && id.Obj == param.Obj)
		return !found
	})
	return found
}

// isDemanded reports whether something else says that a function takes a context.
func (f *file) isDemanded(fn *ast.FuncDecl, demanded map[string]bool) bool {
	if fn.Recv != nil && demanded[f.dir+"."+receiverOf(fn.Recv.List[0].Type)+"."] {
		return true
	}
	return demanded[fn.Name.Name] || demanded[f.dir+"."+fn.Name.Name]
}

// receiverOf returns the name of a type, or of what it points to; "" for another one.
func receiverOf(e ast.Expr) string {
	if pointer, ok := e.(*ast.StarExpr); ok {
		e = pointer.X
	}
	if name, ok := e.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// declaredType returns the name of the type that var _ I = (*T)(nil) says to have an interface; ""
// for another declaration.
func declaredType(spec *ast.ValueSpec) string {
	if spec.Names[0].Name != "_" || spec.Type == nil || len(spec.Values) == 0 {
		return ""
	}
	call, ok := spec.Values[0].(*ast.CallExpr)
	if !ok {
		return ""
	}
	return receiverOf(ast.Unparen(call.Fun))
}

// demandedContexts returns the names of the methods of interfaces that take a context and, after
// the folder of their package, of the functions that are used as values, and with a dot behind them
// of the types that are declared to have an interface.
func demandedContexts(files []*file) map[string]bool {
	demanded := map[string]bool{}
	for _, f := range files {
		seen := map[ast.Node]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					fn, ok := m.Type.(*ast.FuncType)
					if !ok || len(m.Names) == 0 {
						continue
					}
					if taken, _ := contextsOf(fn, nil); taken > 0 {
						demanded[m.Names[0].Name] = true
					}
				}
			case *ast.ValueSpec:
				if name := declaredType(n); name != "" {
					demanded[f.dir+"."+name+"."] = true
				}
			case *ast.CallExpr:
				seen[n.Fun] = true
			case *ast.SelectorExpr:
				seen[n.Sel] = true // looked at as a whole
				if !seen[n] {
					demanded[f.dir+"."+n.Sel.Name] = true
				}
			case *ast.FuncDecl:
				seen[n.Name] = true
			case *ast.Ident:
				if !seen[n] {
					demanded[f.dir+"."+n.Name] = true
				}
			}
			return true
		})
	}
	return demanded
}
