package arch

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
	"Offer": "build.go", "routes": "routes.go", "sendError": "errors.go",
	"newMetrics": "metrics.go", "RemoteWorkers": "worker_api.go",
	"successOutcome": "worker_api.go", "failureOutcome": "worker_api.go",
	"onTransitions": "transitions.go",
	"operators":     "operator.go", "Deliver": "deliver.go"}

// aRoute begins the comment of a handler.
var aRoute = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE) /`)

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

// TestContractsKeepTheirPlaces checks that functions which all contracts have stand in the same
// files, and that each handler stands in a file named after what it serves: handlers_NOUN.go.
func TestContractsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	handlers := map[string]int{} // by contract
	found := map[string]int{}    // of placesOf
	for _, f := range load(t) {
		if f.test || path.Dir(f.dir) != "internal/contract" {
			continue
		}
		name := path.Base(f.path)
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			want := placesOf[fn.Name.Name]
			if want != "" {
				found[fn.Name.Name]++
			}
			if want != "" && want != name {
				t.Errorf("%s has the function %s, which belongs into %s", f.path, fn.Name.Name,
					want)
			}
			if !aRoute.MatchString(fn.Doc.Text()) {
				continue
			}
			handlers[f.dir]++
			if !strings.HasPrefix(name, "handlers_") {
				t.Errorf("%s has the handler %s, which belongs into handlers_NOUN.go", f.path,
					fn.Name.Name)
			}
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
		if _, err := os.Stat(filepath.Join("sixth/testdata/tally", name)); err != nil {
			t.Errorf("there is no %s", name)
		}
	}
	files, err := filepath.Glob("sixth/testdata/tally/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		f, err := parse(file, "internal/contract/tally/"+path.Base(file))
		if err != nil {
			t.Fatal(err)
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
