// Package arch checks the laws of the code base: code that breaks a law fails a test.
// ARCHITECTURE.md explains the laws.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/millrace/millrace"

// file is one parsed Go file of the module.
type file struct {
	path    string // from the root, with slashes
	dir     string
	test    bool
	src     string
	lines   int
	imports []string
	ast     *ast.File
	fset    *token.FileSet
}

func (f *file) in(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return f.dir == d || strings.HasPrefix(f.dir, d+"/")
	})
}

// load returns the files of the module. They are read once for all tests, which do not change them.
func load(t *testing.T) []*file {
	t.Helper()
	return slices.DeleteFunc(loadAll(t), func(f *file) bool { return f.in("bench", ".ci") })
}

// loadAll is load with the files of bench and .ci, which only the laws about conditions, tables,
// errors, names, lines and sizes check.
func loadAll(t *testing.T) []*file {
	t.Helper()
	files, err := loadOnce()
	if err != nil || len(files) < 50 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, dir := range []string{".ci", "bench", "deploy", "torture", "internal", "cmd", "client"} {
		if !slices.ContainsFunc(files, func(f *file) bool { return f.in(dir) }) {
			t.Fatalf("found no files in %s", dir)
		}
	}
	return slices.Clone(files)
}

var loadOnce = sync.OnceValues(func() (files []*file, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if (strings.HasPrefix(d.Name(), ".") && rel != "." && rel != ".ci") ||
				d.Name() == "testdata" || d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := parse(path, rel)
		files = append(files, f)
		return err
	})
	return files, err
})

func parse(path, rel string) (*file, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	dir := filepath.ToSlash(filepath.Dir(rel))
	f := &file{path: rel, dir: dir, src: string(src), lines: strings.Count(string(src), "\n"), ast: tree,
		fset: fset, test: strings.HasSuffix(rel, "_test.go") || isTestPackage(dir)}
	for _, i := range tree.Imports {
		f.imports = append(f.imports, strings.Trim(i.Path.Value, `"`))
	}
	return f, nil
}

// isTestPackage reports whether only tests may import a package.
func isTestPackage(dir string) bool {
	return strings.HasPrefix(dir, "internal/testkit") ||
		strings.HasPrefix(dir, "internal/store/storetest")
}

// rule is a law about imports: the files to which it applies import no forbidden package.
type rule struct {
	law     string
	applies func(*file) bool
	forbid  func(f *file, path string) bool
}

func standard(path string) bool {
	return !strings.Contains(strings.Split(path, "/")[0], ".")
}

func under(path string, packages ...string) bool {
	return slices.ContainsFunc(packages, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+"/")
	})
}

var drivers = []string{"modernc.org/sqlite", "github.com/jackc/pgx/v5",
	module + "/internal/store/sqlite", module + "/internal/store/postgres"}

var rules = []rule{
	{"1: job imports only the standard library, and no I/O",
		func(f *file) bool { return f.in("internal/job") && !f.test },
		func(_ *file, p string) bool {
			return !standard(p) || under(p, "net", "os", "database/sql", "math/rand", "crypto/rand")
		}},
	{"2: only cmd and tests name a storage driver",
		func(f *file) bool { return !f.test && !f.in("cmd", "internal/store", "torture") },
		func(_ *file, p string) bool { return under(p, drivers...) }},
	{"2: what commands share names no storage driver",
		func(f *file) bool { return !f.test && f.in("cmd/millrace/internal") },
		func(_ *file, p string) bool { return under(p, drivers...) }},
	{"simulator and demo use a server through client alone",
		func(f *file) bool {
			return f.in("cmd/millrace/internal/simulate", "cmd/millrace/internal/demo")
		},
		func(_ *file, p string) bool {
			return under(p, module+"/internal") && p != module+"/internal/clock"
		}},
	{"torture, which audits the server, shares no code with it",
		func(f *file) bool { return f.in("torture") },
		func(_ *file, p string) bool { return under(p, module) }},
	{"what commands share imports no command",
		func(f *file) bool { return f.in("cmd/millrace/internal/cli") },
		func(_ *file, p string) bool { return under(p, module+"/cmd") }},
	{"2: database libraries are imported under store alone",
		func(f *file) bool { return !f.test && !f.in("internal/store", "torture") },
		func(_ *file, p string) bool {
			return under(p, "database/sql", "github.com/pressly/goose/v3",
				"github.com/jackc/pgx/v5", "modernc.org/sqlite")
		}},
	{"2: SQS is imported under message alone",
		func(f *file) bool { return !f.test && !f.in("internal/message") },
		func(_ *file, p string) bool {
			return under(p, "gocloud.dev/pubsub", "github.com/aws/aws-sdk-go-v2/service/sqs")
		}},
	{"2: CloudFront is imported under cdn alone",
		func(f *file) bool { return !f.test && !f.in("internal/contract/images/cdn") },
		func(_ *file, p string) bool {
			return under(p, "github.com/aws/aws-sdk-go-v2/service/cloudfront")
		}},
	{"2: NATS is imported under stream alone",
		func(f *file) bool { return !f.test && !f.in("internal/stream", "torture") },
		func(_ *file, p string) bool { return under(p, "github.com/nats-io") }},
	{"2: object storage is imported under object alone",
		func(f *file) bool { return !f.test && !f.in("internal/object") },
		func(_ *file, p string) bool {
			return under(p, "gocloud.dev/blob", "github.com/aws/aws-sdk-go-v2/service/s3")
		}},
	{"3: engine never imports net/http",
		func(f *file) bool { return f.in("internal/engine", "internal/maintenance") && !f.test },
		func(_ *file, p string) bool { return under(p, "net/http") }},
	{"4: a contract imports no other contract",
		func(f *file) bool { return f.in("internal/contract") },
		func(f *file, p string) bool {
			own := strings.Join(append([]string{module},
				strings.Split(f.dir, "/")[:min(3, strings.Count(f.dir, "/")+1)]...), "/")
			shared := p == module+"/internal/contract" // what a contract is
			return under(p, module+"/internal/contract") && !shared && !under(p, own)
		}},
	{"settings are declared below the configuration: only cmd and server import config",
		func(f *file) bool { return !f.test && !f.in("cmd", "internal/server", "internal/config") },
		func(_ *file, p string) bool { return p == module+"/internal/config" }},
	{"settings are declared with what knows no contract",
		func(f *file) bool { return f.in("internal/setting") },
		func(_ *file, p string) bool {
			return under(p, module) && !under(p, module+"/internal/setting",
				module+"/internal/object/name")
		}},
	{"config knows no contract by name",
		func(f *file) bool { return !f.test && f.in("internal/config") },
		func(_ *file, p string) bool { return under(p, module+"/internal/contract") }},
	{"6: default loggers stay out",
		func(f *file) bool { return !f.test && !f.in("bench") },
		func(_ *file, p string) bool { return p == "log" }},
	{"7: client imports the standard library alone",
		func(f *file) bool { return f.in("client") && !f.test },
		func(_ *file, p string) bool { return !standard(p) && p != module+"/client" }},
	{"8: test packages are imported by tests only",
		func(f *file) bool { return !f.test },
		func(_ *file, p string) bool {
			return isTestPackage(strings.TrimPrefix(p, module+"/")) || p == "testing" ||
				strings.HasPrefix(p, "testing/")
		}},
	{"layers: job, store, engine, maintenance, contract import downwards only",
		func(f *file) bool {
			return !f.test && f.in("internal/job", "internal/store", "internal/engine",
				"internal/maintenance")
		},
		func(f *file, p string) bool {
			layers := []string{"internal/job", "internal/store", "internal/engine",
				"internal/maintenance"}
			for i, l := range layers {
				if f.in(l) {
					for _, above := range append(layers[i+1:], "internal/contract",
						"internal/httpapi", "internal/server", "cmd") {
						if under(p, module+"/"+above) {
							return true
						}
					}
				}
			}
			return false
		}},
}

func TestImports(t *testing.T) {
	t.Parallel()
	files := load(t)
	for _, r := range rules {
		t.Run(r.law, func(t *testing.T) {
			checked := 0
			for _, f := range files {
				if !r.applies(f) {
					continue
				}
				checked++
				for _, p := range f.imports {
					if r.forbid(f, p) {
						t.Errorf("%s imports %s", f.path, p)
					}
				}
			}
			if checked == 0 && !strings.Contains(r.law, "contract imports") {
				t.Error("the law applies to no file, so it proves nothing")
			}
		})
	}
}

// calls are laws about functions that only few places may use.
var calls = []struct {
	law     string
	names   []string // package.Function
	allowed func(*file) bool
}{
	{"3: only engine opens a transaction", []string{"*.Update"},
		func(f *file) bool { return f.in("internal/engine", "internal/store") }},
	{"5: outbound HTTP goes through egress",
		[]string{"http.Client", "http.Transport", "http.DefaultClient", "http.DefaultTransport",
			"http.Get", "http.Head", "http.Post", "http.PostForm", "net.Dial", "net.DialTimeout",
			"tls.Dial"},
		func(f *file) bool { return f.in("cmd", "internal/egress", "client", "torture") }},
	{"6: the clock is read in cmd and where a clock is made",
		[]string{"time.Now", "time.Since", "time.Until"},
		func(f *file) bool {
			return f.in("cmd", "internal/telemetry", "client", "torture") || measures[f.path] != ""
		}},
	{"6: the environment is read in cmd", []string{"os.Getenv", "os.Environ", "os.LookupEnv"},
		func(f *file) bool { return f.in("cmd") }},
	{"6: default loggers and registries stay out",
		[]string{"slog.Default", "slog.SetDefault", "prometheus.MustRegister",
			"prometheus.DefaultRegisterer", "prometheus.DefaultGatherer", "slog.Info", "slog.Warn",
			"slog.Error", "slog.Debug"},
		func(f *file) bool { return f.in("cmd") }},
}

// measures lists files that read the clock only to measure or bound a duration, never to decide
// about a job.
var measures = map[string]string{
	"internal/clock/sleep.go":                "waits until its next tick",
	"internal/store/sqlite/session.go":       "times each statement for its observer",
	"internal/store/sqlite/store.go":         "bounds the length of a commit group",
	"internal/store/postgres/session.go":     "times each statement for its observer",
	"internal/store/postgres/store.go":       "times each statement for its observer",
	"internal/store/postgres/notify.go":      "times each statement for its observer",
	"internal/store/postgres/connections.go": "measures how long a server is silent",
	"internal/store/postgres/renewal.go":     "times statements to see whether they are still slow",
}

func TestCalls(t *testing.T) {
	t.Parallel()
	for _, f := range load(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			for _, c := range calls {
				for _, name := range c.names {
					pkg, fn, _ := strings.Cut(name, ".")
					if sel.Sel.Name != fn || c.allowed(f) {
						continue
					}
					if (pkg == "*" && isStoreUpdate(sel)) ||
						(x != nil && x.Name == pkg && x.Obj == nil) {
						t.Errorf("law %s: %s uses %s", c.law, f.fset.Position(sel.Pos()), name)
					}
				}
			}
			return true
		})
	}
}

// isStoreUpdate recognises a call of Update on something named store.
func isStoreUpdate(sel *ast.SelectorExpr) bool {
	switch x := sel.X.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "store") || x.Name == "db"
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "store")
	}
	return false
}

// larger lists what may exceed the limits of law 8, with the reason.
var larger = map[string]string{}

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, f := range loadAll(t) {
		limit, funcLimit := 500, 70
		if f.test {
			limit, funcLimit = 800, 180
		}
		if f.lines > limit && larger[f.path] == "" {
			t.Errorf("%s has %d lines, more than %d", f.path, f.lines, limit)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			if lines > funcLimit && larger[f.path+" "+fn.Name.Name] == "" {
				t.Errorf("%s: %s has %d lines, more than %d", f.path, fn.Name.Name, lines,
					funcLimit)
			}
		}
	}
}

// minLines is how many lines a file of the product has at least: a shorter one is a part of another
// file's idea, unless small has the reason why not. A doc.go, the files for one system alone, and
// those that every contract has by the same name may be short.
const minLines = 40

// small lists what may be shorter, with the reason.
var small = map[string]string{
	"client/user_agent.go":                           "one idea, used where a Client is made",
	"cmd/millrace/docs.go":                           "the documentation, of all contracts",
	"internal/child/limits.go":                       "beside limits_linux.go and limits_other.go",
	"internal/clock/backoff.go":                      "one type",
	"internal/contract/fetchbox/handler/registry.go": "the list to which a handler is added",
	"internal/contract/images/picture/profile.go":    "profiles of all formats",
	"internal/egress/retry_after.go":                 "one header, read by two packages",
	"internal/engine/latest.go":                      "one type",
	"internal/httpapi/bearer.go":                     "one type, which compares secrets",
	"internal/httpapi/server.go":                     "what all listeners have in common",
	"internal/store/observed.go":                     "a decorator of the port",
	"internal/store/sqlite/version.go":               "the same method as version.go of postgres",
	"internal/webhook/machine.go":                    "the state machine, as machine.go of each contract",
	"papers.go":                                      "embeds what only the root folder can",
}

// TestShortFiles checks that no file of the product is shorter than minLines without a reason, and
// that the files with a reason exist.
func TestShortFiles(t *testing.T) {
	t.Parallel()
	listed := 0
	for _, f := range load(t) {
		name := path.Base(f.path)
		ofSystem := strings.HasSuffix(name, "_linux.go") || strings.HasSuffix(name, "_unix.go") ||
			strings.HasSuffix(name, "_other.go")
		ofContract := path.Dir(f.dir) == "internal/contract" && contractFiles[name] != ""
		switch {
		case small[f.path] != "":
			listed++
		case f.lines < minLines && !f.test && name != "doc.go" && !ofSystem && !ofContract:
			t.Errorf("%s has %d lines, less than %d", f.path, f.lines, minLines)
		}
	}
	if listed != len(small) {
		t.Errorf("%d of %d short files are there", listed, len(small))
	}
}

// maxPortMethods bounds the methods of the storage port, all of its interfaces together: every
// database and every store of a test implements them.
const maxPortMethods = 35

func TestPortIsSmall(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	for _, f := range load(t) {
		if f.dir != "internal/store" || f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			named, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if port, ok := named.Type.(*ast.InterfaceType); ok {
				for _, m := range port.Methods.List { // an embedded interface has no names
					methods[named.Name.Name] += len(m.Names)
				}
			}
			return true
		})
	}
	sum := 0
	for _, n := range methods {
		sum += n
	}
	if sum > maxPortMethods {
		t.Errorf("the port has %d methods, more than %d: %v", sum, maxPortMethods, methods)
	}
	for _, name := range []string{"Store", "Reader", "Tx"} {
		if methods[name] == 0 {
			t.Errorf("the port has no interface %s", name)
		}
	}
}
