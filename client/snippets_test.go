package client_test

import (
	"encoding/json"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippetsPrelude declares what the code in comments takes from the program around it.
const snippetsPrelude = `package snippets

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
)

type Mail struct{}

var (
	_        = fmt.Sprint
	_        = time.Second
	_        pgtx.Tx
	c        *client.Client
	relay    = c.Relay()
	flow     = c.TaskFlow()
	key      client.ForgeRunIssuedAPIKey
	manifest json.RawMessage
	f        *os.File
	pool     *pgxpool.Pool
	id       string
	job      json.RawMessage
)

func send(context.Context, Mail) error                            { return nil }
func load(context.Context, *client.JobRun, Mail) (int, error)     { return 0, nil }
func order(context.Context, pgx.Tx, string) error                 { return nil }
func charge(context.Context, pgx.Tx, json.RawMessage) error       { return nil }
`

var (
	assigned   = regexp.MustCompile(`(?m)^(?:var )?([a-z]\w*(?:, [a-z]\w*)*) (?:[:=]=|client\.)`)
	isFunction = regexp.MustCompile(`(?m)^func \w+\(`)
)

// snippets are the blocks of Go in the comments of a file; the others are drawings.
func snippets(t *testing.T, file string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range parsed.Comments {
		for _, block := range new(comment.Parser).Parse(group.Text()).Content {
			code, isCode := block.(*comment.Code)
			if isCode && (strings.Contains(code.Text, ":=") || isFunction.MatchString(code.Text)) {
				all = append(all, code.Text)
			}
		}
	}
	return all
}

// TestSnippets: the Go in the comments of the SDK compiles, in a package that is not on the disk.
func TestSnippets(t *testing.T) {
	t.Parallel()
	source, count := snippetsPrelude, 0
	for _, file := range []string{"doc.go", "taskflow_graph.go", "pgtx/doc.go"} {
		for _, code := range snippets(t, file) {
			count++
			if isFunction.MatchString(code) {
				source += code
				continue
			}
			used := ""
			for _, names := range assigned.FindAllStringSubmatch(code, -1) {
				for name := range strings.SplitSeq(names[1], ", ") {
					used += "\t_ = " + name + "\n"
				}
			}
			source += fmt.Sprintf("\nfunc snippet%d(ctx context.Context) error {\n%s%s\treturn nil\n}\n",
				count, code, used)
		}
	}
	if count != 10 {
		t.Errorf("the comments have %d snippets of Go", count)
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "snippets.go"), filepath.Join(dir, "overlay.json")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(here, "snippets", "snippets.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: source, overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay,
		"./snippets").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s\n%s", err, out, source)
	}
}
