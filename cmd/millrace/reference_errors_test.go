package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/workerapi"
)

// The page docs/reference/errors.md has every code with which requests are refused, and with which
// downloads fail.
func TestReferenceErrors(t *testing.T) {
	t.Parallel()
	p := &page{}
	p.line("# Error codes\n\nHow each API refuses a request, made from the code. A client decides by the" +
		" code, and where there is\nnone by the status; the text beside it is for people. What has a" +
		" `Retry-After` passes by itself: the\nsame request may succeed later, and the" +
		" [clients](../clients.md) repeat it.")
	for _, d := range defineContracts() {
		p.line("\n## %s", contractTitles[d.Name()])
		p.errorTable(d.Errors)
		if d.Name() == "relay" {
			p.line("\nThe last but one is 429 with the setting `relay.retryable_status`, or 503. Answers have no\ncode; the text is plain.")
		}
	}
	p.line("\n## Worker API")
	p.errorTable(workerapi.Errors())
	p.line("\n## Admin API")
	p.errorTable(admin.Errors())
	p.line("\n## Failed downloads\n\nWhy a task of FetchBox has failed: the code of its job's `last_error`, and of its dead letter.\nAn answer of the origin that is no success has the code `HTTP_` and its status.")
	p.table("code", "why")
	for _, one := range commentedCodes(t, "../../internal/contract/fetchbox/task_error.go") {
		p.row(code(one[0]), one[1])
	}
	checkReference(t, "errors.md", p.String())
}

// errorTable adds how an API refuses requests.
func (p *page) errorTable(table httpapi.ErrorTable) {
	p.table("code", "status", "when", "Retry-After")
	for _, row := range table {
		status, after := strconv.Itoa(row.Status), ""
		if row.RetryAfter > 0 {
			after = fmt.Sprintf("%.0f s", row.RetryAfter.Seconds())
		}
		p.row(code(row.Code), status+" "+http.StatusText(row.Status), row.Title, after)
	}
}

// commentedCodes returns the codes that a file declares, each with its comment.
func commentedCodes(t *testing.T, file string) (all [][2]string) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tree.Decls {
		constants, ok := d.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			continue
		}
		for _, s := range constants.Specs {
			spec := s.(*ast.ValueSpec)
			if !strings.HasPrefix(spec.Names[0].Name, "code") {
				continue
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			comment := strings.TrimSpace(spec.Comment.Text())
			if comment == "" {
				t.Errorf("%s has no comment, which the documentation shows", value)
			}
			all = append(all, [2]string{value, comment})
		}
	}
	return all
}
