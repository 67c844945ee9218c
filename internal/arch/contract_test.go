package arch

import (
	"go/ast"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contractFiles are the files of every contract, with what each is for.
var contractFiles = map[string]string{
	"doc.go":         "the contract in short, with a drawing of its states",
	"settings.go":    "the settings, with their defaults, meanings and checks",
	"build.go":       "what the contract declares, how it is built, and Offer",
	"contract.go":    "OpenAPI, Config and its validate, New, JobType, Mount, Run",
	"machine.go":     "the state machine",
	"routes.go":      "the table of routes",
	"request.go":     "how requests are read and checked",
	"wire.go":        "the forms of jobs in answers",
	"errors.go":      "the table of errors, and sendError",
	"metrics.go":     "the metrics",
	"transitions.go": "what is counted, logged and traced of committed transitions",
	"executor.go":    "how jobs are executed in this process",
	"worker_api.go":  "what remote workers need, and the outcomes of attempts",
	"openapi.yaml":   "the description for clients",
}

// withoutFile lists files that a contract does not need, with the reason.
var withoutFile = map[string]string{
	"relay/executor.go": "its workers are all remote",
}

// placesOf names the file of a contract in which a function has to stand. Each is in two contracts
// or more.
var placesOf = map[string]string{"New": "contract.go", "JobType": "contract.go",
	"Mount": "contract.go", "Run": "contract.go", "validate": "contract.go", "Define": "build.go",
	"Offer": "build.go", "routes": "routes.go", "sendError": "errors.go", "malformed": "errors.go",
	"invalid": "errors.go", "conflict": "errors.go", "tooLarge": "errors.go",
	"notFound": "errors.go", "newMetrics": "metrics.go", "observeRoute": "metrics.go",
	"RemoteWorkers": "worker_api.go", "successOutcome": "worker_api.go",
	"failureOutcome": "worker_api.go", "onTransitions": "transitions.go",
	"operators": "operator.go", "Deliver": "deliver.go"}

// signatures are the signatures of those functions that have the same one in every contract.
var signatures = map[string]string{
	"JobType":           "func() engine.JobType",
	"Mount":             "func() httpapi.PrefixHandler",
	"Run":               "func(ctx context.Context)",
	"validate":          "func() error",
	"Define":            "func() *contract.Definition",
	"Offer":             "func() *contract.Contract",
	"routes":            "func() []httpapi.Route",
	"sendError":         "func(c *httpapi.Call, err error)",
	"malformed":         "func(format string, args ...any) error",
	"invalid":           "func(format string, args ...any) error",
	"conflict":          "func(format string, args ...any) error",
	"tooLarge":          "func(format string, args ...any) error",
	"notFound":          "func(what string) error",
	"observeRoute":      "func(r *httpapi.Route) func(status int, took time.Duration)",
	"RemoteWorkers":     "func() workerapi.Adapter",
	"onTransitions":     "func(transitions []engine.Transitioned)",
	"observeTransition": "func(c *engine.Transitioned)",
	"operators":         "func() []contract.Operator",
	"Deliver":           "func(ctx context.Context, messages []job.Message) error",
}

// handlersFile is the name of a file of handlers: what they serve, in the plural, as in its routes.
// Health has none, and the handlers of an earlier version may be in a file of that.
var handlersFile = regexp.MustCompile(`^handlers_(\w+s|health|v\d)\.go$`)

// aRoute begins the comment of a handler.
var aRoute = regexp.MustCompile(`^(?:GET|HEAD|POST|PUT|PATCH|DELETE) /[^ :?]*`)

// handlerNames are the names of handlers that several contracts have, by their routes. A handler of
// another version of a contract ends in it, as getJobV1 does.
var handlerNames = map[string]*regexp.Regexp{
	"submitJob":        regexp.MustCompile(`^POST /.*jobs$`),
	"listJobs":         regexp.MustCompile(`^GET /.*jobs$`),
	"getJob":           regexp.MustCompile(`^GET /.*jobs/\{(job_)?id\}$`),
	"deleteJob":        regexp.MustCompile(`^DELETE /.*jobs/\{(job_)?id\}$`),
	"cancelJob":        regexp.MustCompile(`^POST /.*jobs/\{job_id\}/cancel$`),
	"retryJob":         regexp.MustCompile(`^POST /.*jobs/\{job_id\}/retry$`),
	"listDeadLetters":  regexp.MustCompile(`^GET /.*(dead-letters|dlq)$`),
	"replayDeadLetter": regexp.MustCompile(`^POST /.*(dead-letters|dlq)/\{\w+\}/replay$`),
}

// wordsOfRelay are the handlers that are named by the document of Relay: it enqueues many jobs at
// once, and its GET of jobs claims them.
var wordsOfRelay = []string{"enqueue", "next"}

// TestContractsAreAlike checks that the directories of the contracts have the same files with the
// same contents, so that a reader who knows one contract finds everything in the others.
func TestContractsAreAlike(t *testing.T) {
	t.Parallel()
	for _, contract := range contractFolders(t) {
		for name, purpose := range contractFiles {
			key := path.Join(contract, name)
			_, err := os.Stat(path.Join("../contract", key))
			if err != nil && withoutFile[key] == "" {
				t.Errorf("%s has no %s: %s", contract, name, purpose)
			}
			if err == nil && withoutFile[key] != "" {
				t.Errorf("%s exists and stands among those that are not needed", key)
			}
		}
	}
}

// TestContractsKeepTheirPlaces checks that functions which several contracts have stand in the same
// files with the same signatures, and that each handler stands in a file named after what it
// serves, handlers_NOUNS.go, and is named as those of the same act in the other contracts.
func TestContractsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	handlers := map[string]int{} // by contract
	found := map[string]int{}    // of placesOf and handlerNames
	for _, f := range load(t) {
		if f.test || path.Dir(f.dir) != "internal/contract" {
			continue
		}
		for _, fn := range functionsOf(f) {
			found[strings.TrimSuffix(fn.Name.Name, "V1")]++
			checkPlace(t, f, fn)
			if aRoute.MatchString(fn.Doc.Text()) {
				handlers[f.dir]++
				checkHandler(t, f, fn)
			}
		}
	}
	for name := range handlerNames {
		if found[name] < 2 {
			t.Errorf("the handler %s is in %d contracts", name, found[name])
		}
	}
	for name := range placesOf {
		if found[name] < 2 {
			t.Errorf("%s is in %d contracts: it is no longer alike, or has another name", name,
				found[name])
		}
	}
	if contracts := contractFolders(t); len(handlers) != len(contracts) {
		t.Errorf("found handlers of %d contracts, want %d", len(handlers), len(contracts))
	}
}

// functionsOf returns the functions and methods of a file.
func functionsOf(f *file) (all []*ast.FuncDecl) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			all = append(all, fn)
		}
	}
	return all
}

// checkPlace checks the file and the signature of a function that several contracts have.
func checkPlace(t *testing.T, f *file, fn *ast.FuncDecl) {
	t.Helper()
	name := fn.Name.Name
	if want := placesOf[name]; want != "" && want != path.Base(f.path) {
		t.Errorf("%s has the function %s, which belongs into %s", f.path, name, want)
	}
	got := strings.Replace(types.ExprString(fn.Type), "(_ ", "(c ", 1) // it may use no argument
	if want := signatures[name]; want != "" && want != got {
		t.Errorf("%s: %s is a %s, and a %s in the other contracts", f.path, name, got, want)
	}
}

// checkHandler checks the file and the name of a handler.
func checkHandler(t *testing.T, f *file, fn *ast.FuncDecl) {
	t.Helper()
	name := strings.TrimSuffix(fn.Name.Name, "V1")
	if !handlersFile.MatchString(path.Base(f.path)) {
		t.Errorf("%s has the handler %s, which belongs into handlers_NOUNS.go", f.path, name)
	}
	route := aRoute.FindString(fn.Doc.Text())
	for want, routes := range handlerNames {
		named := path.Base(f.dir) == "relay" && slices.Contains(wordsOfRelay, name)
		if routes.MatchString(route) && name != want && !named {
			t.Errorf("%s: the handler of %s is %s, and %s in the other contracts", f.path, route,
				name, want)
		}
	}
}

// contractFolders returns the names of the folders below contract, each of which is a contract.
func contractFolders(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("../contract")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatal("found no contract")
	}
	return names
}

// TestSixthContract holds the contract that package sixth adds to the binary to what is asked of
// the others.
func TestSixthContract(t *testing.T) {
	t.Parallel()
	for name := range contractFiles {
		if _, err := os.Stat(filepath.Join("sixth/testdata/wordcount", name)); err != nil {
			t.Errorf("there is no %s", name)
		}
	}
	files, err := filepath.Glob("sixth/testdata/wordcount/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		f, err := parse(file, "internal/contract/wordcount/"+path.Base(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, fn := range functionsOf(f) {
			checkPlace(t, f, fn)
			if aRoute.MatchString(fn.Doc.Text()) {
				checkHandler(t, f, fn)
			}
		}
		for _, r := range rules {
			for _, p := range f.imports {
				if r.applies(f) && r.forbid(f, p) {
					t.Errorf("law %s: %s imports %s", r.law, file, p)
				}
			}
		}
	}
}
