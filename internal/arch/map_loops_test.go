package arch

import (
	"go/ast"
	"go/token"
	"testing"
)

// TestTablesHaveAnOrder checks that no loop over a map ends its function with more than a constant:
// what it does first, and which of two errors it returns, would be another each time. A map is
// what stands as one in the source, or what its function declares as one; of a struct, a member
// that is a map in each struct of the package that has a member of this name.
func TestTablesHaveAnOrder(t *testing.T) {
	t.Parallel()
	files := loadAll(t)
	members := map[string]map[string]bool{} // whether members of structs are maps, by directory
	for _, f := range files {
		if members[f.dir] == nil {
			members[f.dir] = map[string]bool{}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok {
				noteMembers(members[f.dir], s.Fields)
			}
			return true
		})
	}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, declaration := range f.ast.Decls {
			maps := mapsOf(declaration)
			ast.Inspect(declaration, func(n ast.Node) bool {
				loop, ok := n.(*ast.RangeStmt)
				if ok && isMap(loop.X, maps, members[f.dir]) && returnsValue(loop.Body) {
					t.Errorf("%s returns from a loop over a map, which has no order", f.position(n))
				}
				return true
			})
		}
	}
}

// mapsOf returns the parameters and variables of a declaration that are declared as maps.
func mapsOf(declaration ast.Decl) map[string]bool {
	maps := map[string]bool{}
	ast.Inspect(declaration, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			noteMaps(maps, n.Params)
			noteMaps(maps, n.Results)
		case *ast.ValueSpec:
			for i, name := range n.Names {
				isMade := len(n.Values) == len(n.Names) && makesMap(n.Values[i])
				maps[name.Name] = maps[name.Name] || isMapType(n.Type) || isMade
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				name, ok := left.(*ast.Ident)
				if ok && n.Tok == token.DEFINE && i < len(n.Rhs) && makesMap(n.Rhs[i]) {
					maps[name.Name] = true
				}
			}
		}
		return true
	})
	return maps
}

func noteMaps(maps map[string]bool, fields *ast.FieldList) {
	if fields == nil {
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			if isMapType(field.Type) {
				maps[name.Name] = true
			}
		}
	}
}

func noteMembers(members map[string]bool, fields *ast.FieldList) {
	for _, field := range fields.List {
		for _, name := range field.Names {
			others, known := members[name.Name]
			members[name.Name] = isMapType(field.Type) && (others || !known)
		}
	}
}

func isMapType(e ast.Expr) bool {
	_, ok := e.(*ast.MapType)
	return ok
}

// makesMap reports whether an expression is a map that stands in the source, is made, or is
// asserted to be one.
func makesMap(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return isMapType(e.Type)
	case *ast.TypeAssertExpr:
		return isMapType(e.Type)
	case *ast.CallExpr:
		return isNamed(e.Fun, "make") && len(e.Args) > 0 && isMapType(e.Args[0])
	}
	return false
}

func isMap(e ast.Expr, maps, members map[string]bool) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return maps[e.Name]
	case *ast.SelectorExpr:
		return members[e.Sel.Name]
	case *ast.StarExpr:
		return isMap(e.X, maps, members)
	default:
		return makesMap(e)
	}
}

// returnsValue reports whether a block may end its function with a result that is no constant.
func returnsValue(block *ast.BlockStmt) (found bool) {
	ast.Inspect(block, func(n ast.Node) bool {
		if end, ok := n.(*ast.ReturnStmt); ok {
			for _, result := range end.Results {
				_, isLiteral := result.(*ast.BasicLit)
				isConstant := isLiteral || isNamed(result, "true") || isNamed(result, "false") ||
					isNamed(result, "nil")
				found = found || !isConstant
			}
		}
		_, isFunction := n.(*ast.FuncLit) // whose returns are its own
		return !isFunction
	})
	return found
}
