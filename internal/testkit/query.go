package testkit

import (
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// pathMember finds the parameters in a path of a document.
var pathMember = regexp.MustCompile(`\{[^}]*\}`)

// WantUnknownQueriesRefused checks every route of the document that changes something: it must
// answer 400 with a code to an unknown query parameter, and name the known ones. strict are
// "METHOD PATH" of GET routes that must do so too. A parameter that is misspelt and ignored would
// change or list something else than its sender meant.
func (d *Document) WantUnknownQueriesRefused(
	tb testing.TB, code string, do func(method, path string) Reply, strict ...string,
) {
	tb.Helper()
	requests := 0
	for path, item := range d.Doc.Paths.Map() {
		for method, op := range item.Operations() {
			readOnly := method == http.MethodGet || method == http.MethodHead
			if readOnly && !slices.Contains(strict, method+" "+path) {
				continue
			}
			words := []string{`"filter"`}
			for _, of := range []openapi3.Parameters{item.Parameters, op.Parameters} {
				for _, p := range of {
					if p.Value.In == openapi3.ParameterInQuery {
						words = append(words, p.Value.Name)
					}
				}
			}
			named := pathMember.ReplaceAllString(path, "01890000-0000-7000-8000-000000000000")
			requests++
			r := do(method, named+"?filter=x")
			if r.Status != http.StatusBadRequest {
				tb.Errorf("%s %s?filter=x: got %d %s, want 400", method, path, r.Status, r.Body)
				continue
			}
			r.WantError(tb, http.StatusBadRequest, code, words...)
		}
	}
	if requests < len(strict)+1 {
		tb.Errorf("only %d routes were asked", requests)
	}
}
