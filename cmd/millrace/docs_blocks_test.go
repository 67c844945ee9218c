package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ranBlocks says of each page how many blocks of code it has that are no commands of a shell, which
// tests take them from the page and run them, which tests do the same without the page, and what is
// not run, and why. recordedCommands has the blocks of commands.
var ranBlocks = map[string]struct {
	blocks            int
	tests, alike, not string
}{
	"README.md":       {blocks: 1, tests: "TestGuidesOfTheDocs", not: "the picture"},
	"ARCHITECTURE.md": {blocks: 1, tests: "TestTreeOfTheArchitecture"},
	"bench/README.md": {blocks: 1, tests: "TestRunsOfThePages",
		not: "the outline of a case, which the cases of bench are alike"},
	"clients/python/README.md":     {blocks: 9, tests: "clients/python/tests/test_readme.py"},
	"clients/typescript/README.md": {blocks: 11, tests: "clients/typescript/test/readme.test.js"},
	"docs/decisions/0015-search.md": {blocks: 1, alike: "TestPlans",
		not: "plans of another day: the test looks for the indexes in plans of its own"},
	"docs/handlers.md": {blocks: 13, tests: "TestHandlersOfTheDocs TestGoHandlersOfTheDocs " +
		"TestFilesOfSettingsInTheDocs"},
	"docs/images-worker.md": {blocks: 2, tests: "TestImagesWork"},
	"docs/operating.md": {blocks: 4,
		tests: "TestFilesOfSettingsInTheDocs TestPolicyOfTheDocs TestOutagesAreLoggedOnce"},
	"docs/postgresql.md": {blocks: 3, tests: "TestPostgresOfTheDocs"},
	"docs/producers.md":  {blocks: 2, tests: "TestProducerOfTheDocs TestSchemaOfTheDocs"},
	"docs/proxies.md": {blocks: 4, tests: "TestBehindNginx TestBehindCaddy TestBehindEnvoy " +
		"TestFilesOfSettingsInTheDocs",
		not: "Envoy, where it is not installed: its definitions check the file then, in .ci/envoy"},
	"docs/recipes.md":          {blocks: 33, tests: "TestRecipesOfTheDocs"},
	"docs/reference/events.md": {blocks: 37, tests: "TestReferenceEvents"},
	"docs/relay.md":            {blocks: 1, tests: "TestFilesOfSettingsInTheDocs"},
	"docs/scaling.md": {blocks: 6, tests: "TestScalingByContract TestScalingByQueue " +
		"TestScalingNATS TestScalingFailover TestScalingPatroni"},
	"docs/schedules.md": {blocks: 1, tests: "TestFilesOfSettingsInTheDocs"},
	"docs/security.md":  {blocks: 4, tests: "TestSecurityOfTheDocs"},
	"docs/start.md": {blocks: 16, tests: "TestStartOfTheDocs TestKillItOfTheDocs TestRelease " +
		"TestFilesOfSettingsInTheDocs"},
	"docs/taskflow.md":     {blocks: 1, tests: "TestFilesOfSettingsInTheDocs"},
	"docs/transactions.md": {blocks: 13, tests: "TestTransactionsOfTheDocs"},
	"docs/webhooks.md":     {blocks: 3, tests: "TestGenuineOfTheDocs TestEventTypesOfTheDocs"},
	"docs/workers.md":      {blocks: 3, tests: "TestWorkersOfTheDocs TestBodiesOfWorkersInTheDocs"},
}

// testSource is what the tests of a package declare, by name. Methods of several types may share
// one.
type testSource map[string][]ast.Node

// sourceOfTests reads the tests of a folder.
func sourceOfTests(t *testing.T, folder string) testSource {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(folder, err)
	}
	source := testSource{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range f.Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				source[d.Name.Name] = append(source[d.Name.Name], d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, isValue := spec.(*ast.ValueSpec); isValue {
						source[v.Names[0].Name] = append(source[v.Names[0].Name], v)
					}
				}
			}
		}
	}
	return source
}

// reads reports whether a declaration has the name of a page, or that of the function guides, which
// returns all pages; or uses one that has it.
func (s testSource) reads(name, page string, seen map[string]bool) (found bool) {
	if name == "guides" {
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	for _, declared := range s[name] {
		ast.Inspect(declared, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				found = found || s.reads(n.Name, page, seen)
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				text = strings.TrimLeft(text, "./")
				found = found || (err == nil && slices.Contains([]string{text, "docs/" + text,
					"docs/reference/" + text}, page))
			}
			return !found
		})
	}
	return found
}

// testSources are the tests of several packages.
type testSources []testSource

// allTestSources reads the tests of the packages that run what pages have.
func allTestSources(t *testing.T) (all testSources) {
	t.Helper()
	for _, folder := range []string{".", "../../deploy", "../../torture", "../../bench",
		"../../internal/object", "../../internal/engine", "../../internal/arch",
		"../../internal/store/postgres"} {
		all = append(all, sourceOfTests(t, folder))
	}
	return all
}

// problem says why a test cannot be one that runs what a page has; a page "" is any. A test whose
// name is that of a file is of another language: .ci/clients runs all of its folder.
func (s testSources) problem(test, page string) string {
	if strings.Contains(test, "/") {
		text, err := os.ReadFile(filepath.Join("../..", test))
		switch {
		case err != nil:
			return "is not there"
		case !strings.Contains(string(text), `"`+path.Base(page)+`"`):
			return "does not read it"
		}
		return ""
	}
	problem := "is not there"
	for _, source := range s {
		if source[test] != nil {
			problem = "does not read it"
		}
		if source[test] != nil && (page == "" || source.reads(test, page, map[string]bool{})) {
			return ""
		}
	}
	return problem
}

// TestBlocksOfTheDocs: each page with code that is no commands has tests that read it. A block that
// is added fails here until its page says again which tests run its blocks.
func TestBlocksOfTheDocs(t *testing.T) {
	t.Parallel()
	sources, pages := allTestSources(t), allPages(t)
	for name, page := range pages {
		ran := ranBlocks[name]
		blocks := len(codeBlock.FindAllString(page, -1)) - len(commandBlocks(page))
		if blocks != ran.blocks {
			t.Errorf("%s has %d blocks, and tests are named for %d", name, blocks, ran.blocks)
		}
		if ran.blocks > 0 && ran.tests+ran.alike == "" {
			t.Errorf("no test runs what %s has", name)
		}
		for test := range strings.FieldsSeq(ran.tests) {
			if problem := sources.problem(test, name); problem != "" {
				t.Errorf("%s: %s %s", name, test, problem)
			}
		}
		for test := range strings.FieldsSeq(ran.alike) {
			if problem := sources.problem(test, ""); problem != "" {
				t.Errorf("%s: %s %s", name, test, problem)
			}
		}
	}
	for name := range ranBlocks {
		if pages[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	for test, want := range map[string]string{"TestSQLiteOfTheDocs": "does not read it",
		"clients/python/tests/base.py": "does not read it",
		"TestNothing":                  "is not there", "clients/nothing.py": "is not there"} {
		if got := sources.problem(test, "docs/scaling.md"); got != want {
			t.Errorf("%s: %q, want %q", test, got, want)
		}
	}
}
