package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
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
	for _, one := range commentedCodes(t, "../../internal/contract/fetchbox/task_error.go") {
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

// failureTypes are the types of failures, each with the file that has it. Those of a worker that is
// no part of the server are its own.
var failureTypes = []struct{ of, name, when, file string }{
	{"TaskFlow", "lost", "the lease passed without a heartbeat or an outcome",
		"contract/taskflow/worker_api.go"},
	{"TaskFlow", "canceled", "by a request to cancel the attempt",
		"contract/taskflow/handlers_jobs.go"},
	{"TaskFlow", "panic", "a handler in Go panicked", "contract/taskflow/executor.go"},
	{"exec", "exit", "the command ended with another code than 0", "external/command.go"},
	{"exec", "timeout", "it took longer than its limit", "external/command.go"},
	{"exec", "output", "it wrote more than its limit", "external/command.go"},
	{"exec", "command", "it cannot be run on this machine", "external/external.go"},
	{"http", "http_", "the answer had this status, as in `http_404`", "external/service.go"},
	{"http", "connection", "there was no answer", "external/service.go"},
	{"http", "refused", "the guard of outbound requests refused the address",
		"external/service.go"},
	{"Images", "worker_lost", "the lease passed, or the worker released the job",
		"contract/images/wire.go"},
	{"Images", "file_deleted", "the file was deleted meanwhile",
		"contract/images/metrics_worker.go"},
	{"Images", "storage_error", "the object storage failed", "contract/images/metrics_worker.go"},
	{"Images", "original_missing", "the uploaded picture is not in the object storage",
		"contract/images/metrics_worker.go"},
	{"Images", "internal_error", "the server itself failed", "contract/images/metrics_worker.go"},
	{"Images", "decode_error", "it is not a complete picture of a supported type",
		"contract/images/picture/picture.go"},
	{"Images", "too_large", "it has more pixels than the limit",
		"contract/images/picture/picture.go"},
	{"Images", "unsupported", "it has features that the decoders lack",
		"contract/images/picture/picture.go"},
	{"Images", "timeout", "its process took longer than the limit",
		"contract/images/picture/picture.go"},
	{"Images", "out_of_memory", "its process needed more memory than the limit",
		"contract/images/picture/picture.go"},
	{"Images", "crashed", "its process died", "contract/images/picture/picture.go"},
}

// failures adds the types of failures, each of which the code has in its file.
func (p *page) failures(t *testing.T) {
	t.Helper()
	p.line("\n## Failed jobs\n\nWhy an attempt has failed: the `error_type` of TaskFlow's" +
		" `last_error`, of its handlers by\n[`exec` and `http`](../handlers.md), and of jobs of" +
		" Images.\nWorkers of your own have types of their own.")
	p.table("of", "error_type", "when")
	for _, one := range failureTypes {
		source, err := os.ReadFile(filepath.Join("../../internal", one.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(source), strconv.Quote(one.name)) {
			t.Errorf("%s has no %q", one.file, one.name)
		}
		p.row(one.of, code(one.name), one.when)
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
