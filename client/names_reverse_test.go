package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// classes are the types whose methods the clients have in common.
var classes = []string{"Client", "Relay", "TaskFlow", "TaskFlowGraphBuilder", "ForgeRun",
	"FetchBox", "Images", "WorkerAPI", "Worker", "JobWorker", "Run", "JobRun", "Admin"}

// foreignOnly are the methods and names that another client has and Go lacks, with what the table
// of docs/clients.md says of them. A name without a page is one of Go under another name.
var foreignOnly = map[string]map[string]string{
	"Python": {
		"Client.with_timeout": "`client.with_timeout(seconds)`",
		"Worker.stop":         "`worker.stop()`", "JobWorker.stop": "`worker.stop()`",
		"Worker.kill": "`worker.kill()`", "JobWorker.kill": "`worker.kill()`",
		"Run.ended": "`run.ended`", "JobRun.ended": "`run.ended`",
		"Run.cause": "`run.cause`", "JobRun.cause": "`run.cause`",
		"Run.wait": "`run.wait(seconds)`", "JobRun.wait": "`run.wait(seconds)`",
		"Run.check": "`run.check()`", "JobRun.check": "`run.check()`",
		"AdminJobFilter": "`AdminJobFilter`", "AfterJobRun": "`AfterJobRun`",
		"AfterRun": "`AfterRun`", "Contract": "`Contract`", "__version__": "`__version__`",
		"CanceledError": "`CanceledError`", "DeadlineError": "`DeadlineError`",
		"ImageJobType": "`ImageJobType`", "RawJSON": "`RawJSON`", "UNSET": "`UNSET`",
	},
	"TypeScript": {
		"AbortedError": "`AbortedError`", "AdminJobFilter": "`AdminJobFilter`",
		"AdminPhase": "`AdminPhase`", "ClaimedRelayJob": "`ClaimedRelayJob`",
		"ImageJobType": "`ImageJobType`", "JobWorkerConfig": "`JobWorkerConfig`",
		"MillraceError": "`MillraceError`", "RawJSON": "`RawJSON`",
		"Logger": "`Logger`", "WebhookHeaders": "`WebhookHeaders`", "WorkerConfig": "`WorkerConfig`",
		"WorkerContract": "`WorkerContract`", "WorkerSettings": "`WorkerSettings`",
		"isFinal": "`isFinal(status)`",
	},
}

// differences is the table of docs/clients.md.
func differences(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## What differs\n")
	if !found {
		t.Fatal("docs/clients.md does not say what differs")
	}
	return table
}

// plain is a name without what languages write in different ways.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// goNames are the names of this package, as plain has them.
func goNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, text := range sources(t, "*.go") {
		file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[plain(d.Name.Name)] = d.Name.IsExported()
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						names[plain(s.Name.Name)] = s.Name.IsExported()
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[plain(name.Name)] = name.IsExported()
						}
					}
				}
			}
		}
	}
	return names
}

// foreignNames are the names that another client exports besides methods.
func foreignNames(t *testing.T, language string) (names []string) {
	t.Helper()
	switch language {
	case "Python":
		for _, text := range sources(t, "../clients/python/millrace/*.py") {
			if found := regexp.MustCompile(`(?s)__all__ = \[(.*?)\]`).FindStringSubmatch(text); found !=
				nil {
				names = append(names, regexp.MustCompile(`\w+`).FindAllString(found[1], -1)...)
			}
		}
		for _, found := range regexp.MustCompile(`import (\w+) as \w+`).FindAllStringSubmatch(
			sources(t, "../clients/python/millrace/__init__.py")[0], -1) {
			names = append(names, found[1])
		}
	case "TypeScript":
		index := sources(t, "../clients/typescript/src/index.ts")[0]
		for _, found := range regexp.MustCompile(`export (?:type )?\{([^}]*)\}`).FindAllStringSubmatch(
			index, -1) {
			for name := range strings.SplitSeq(found[1], ",") {
				words := strings.Fields(name)
				names = append(names, words[len(words)-1])
			}
		}
	}
	if len(names) < 100 {
		t.Fatalf("%s exports %v", language, names)
	}
	return names
}

// internalMethods are methods of the client for TypeScript that are for the client itself.
func internalMethods(t *testing.T) (names []string) {
	t.Helper()
	for _, text := range sources(t, "../clients/typescript/src/*.ts") {
		for _, found := range regexp.MustCompile(`/\*\* @internal [^/]*\*/\s+(?:async )?(\w+)`).
			FindAllStringSubmatch(text, -1) {
			names = append(names, snake(found[1]))
		}
	}
	return names
}

// TestForeignNames: what the clients for Python and TypeScript have and this one lacks, of methods,
// types and functions, is in the table of docs/clients.md.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	own, names, table := goSDK(t), goNames(t), differences(t)
	for language, other := range map[string]sdk{"Python": pythonSDK(t),
		"TypeScript": typeScriptSDK(t)} {
		listed := foreignOnly[language]
		used := map[string]bool{}
		check := func(name string, isOwn bool) {
			t.Helper()
			text := listed[name]
			used[name] = text != "" && !isOwn
			if !isOwn && (text == "" || !strings.Contains(table, text)) {
				t.Errorf("Go has no %s of %s, and docs/clients.md does not say so", name, language)
			}
		}
		internal := append(internalMethods(t), "constructor")
		for _, of := range classes {
			for _, name := range other.methods[of] {
				if language == "Python" || !slices.Contains(internal, name) {
					check(of+"."+name, slices.Contains(own.methods[of], name))
				}
			}
		}
		for _, name := range foreignNames(t, language) {
			kind, isError := strings.CutSuffix(name, "Error")
			isOptions := language == "TypeScript" && strings.HasSuffix(name, "Options")
			check(name, names[plain(name)] || (isError && names[plain("Err"+kind)]) ||
				names[plain("Err"+name)] || isOptions)
		}
		for name := range listed {
			if !used[name] {
				t.Errorf("%s has no %s, or Go has it too", language, name)
			}
		}
	}
	if !strings.Contains(table, "members of the last argument") {
		t.Error("docs/clients.md does not say what the options of TypeScript are")
	}
}
