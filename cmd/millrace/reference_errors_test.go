package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/workerapi"
)

// The page docs/reference/errors.md has every code with which requests are refused, and with which
// downloads and jobs fail, commands end, and functions in SQL raise errors.
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
	for _, one := range commentedCodes(t, "../../internal/contract/fetchbox/task_error.go",
		"codeURL") {
		p.row(code(one[0]), one[1])
	}
	p.failures(t)
	p.line("\n## SQL\n\nWhat the functions for [transactions](../transactions.md) raise.")
	p.table("SQLSTATE", "message begins with", "when")
	p.row("`MR001`", "`MILLRACE_RUN_LOST`", "the run is not its job's current one")
	p.row("`MR002`", "`MILLRACE_INVALID`", "an argument is wrong")
	p.line("\n## Exit codes\n\nOf all commands of millrace.")
	p.table("code", "when")
	for line := range strings.SplitSeq(cli.ExitHelp, "\n") {
		if number, when, found := strings.Cut(strings.TrimSpace(line), "  "); found {
			p.row(code(number), strings.TrimSpace(when))
		}
	}
	checkReference(t, "errors.md", p.String())
}

// failureCodes are where the code declares why jobs fail: in the group of constants of one of them.
var failureCodes = []struct{ of, file, constant string }{
	{"ForgeRun", "contract/forgerun/events.go", "codeRunnerLost"},
	{"TaskFlow", "contract/taskflow/worker_api.go", "typeLost"},
	{"handlers", "external/external.go", "typeExit"},
	{"Images", "contract/images/metrics_worker.go", "typeWorkerLost"},
	{"Images", "contract/images/picture/picture.go", "DecodeError"},
	{"[transactions](../transactions.md)", "engine/recorded_ends.go", "RefusedType"},
}

// literalFailure matches a literal where the code of a failure is given.
var literalFailure = regexp.MustCompile(`\b(code|Type):\s*"\w|\berrorType, "\w|` +
	`[fF]ailureOutcome\(.*, "\w+", (true|false)\)|encodeFailure\([^,]+, "\w`)

// failures adds why jobs fail. The packages that declare it give codes by their constants alone.
func (p *page) failures(t *testing.T) {
	t.Helper()
	p.line("\n## Failed jobs\n\nWhy an attempt has failed: the `code` of ForgeRun's `failure`, the" +
		" `error_type` of TaskFlow's\n`last_error`, of its handlers by [`exec` and `http`]" +
		"(../handlers.md), and of jobs of Images.\nWorkers of your own have codes of their own.")
	p.table("of", "code or error_type", "when")
	for _, group := range failureCodes {
		file := filepath.Join("../../internal", group.file)
		for _, one := range commentedCodes(t, file, group.constant) {
			p.row(group.of, code(one[0]), one[1])
		}
		sources, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range sources {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if found := literalFailure.Find(source); found != nil && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s has %s, which is no constant that is documented", name, found)
			}
		}
	}
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

// commentedCodes returns the codes of the group of constants in which one of them is declared, each
// with its comment.
func commentedCodes(t *testing.T, file, constant string) (all [][2]string) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	isMeant := func(s ast.Spec) bool { return s.(*ast.ValueSpec).Names[0].Name == constant }
	for _, d := range tree.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST || !slices.ContainsFunc(group.Specs, isMeant) {
			continue
		}
		for _, s := range group.Specs {
			spec := s.(*ast.ValueSpec)
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
	if len(all) == 0 {
		t.Errorf("%s has no group with %s", file, constant)
	}
	return all
}
