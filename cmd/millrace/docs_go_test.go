package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goFlags are the flags of `go test` that pages use. Those after -args are of the tests.
var goFlags = []string{"run", "bench", "fuzz", "benchtime", "timeout", "count", "v", "c"}

// goTestCommands returns the commands of `go test` of a page, as words.
func goTestCommands(page string) (all [][]string) {
	line := regexp.MustCompile(`\bgo test ([^#;&)]*)`)
	for _, code := range codeOf(page) {
		for _, command := range line.FindAllStringSubmatch(code, -1) {
			all = append(all, shellWord.FindAllString(command[1], -1))
		}
	}
	return all
}

// TestGoTestsOfTheDocs: each command of `go test` on a page has packages, tests and flags that
// there are. The commands themselves run for minutes, or are the tests that run here anyway.
func TestGoTestsOfTheDocs(t *testing.T) {
	t.Parallel()
	count := 0
	for name, page := range allPages(t) {
		for _, words := range goTestCommands(page) {
			count++
			if problem := wrongGoTest(t, words); problem != "" {
				t.Errorf("%s has `go test %s`: %s", name, strings.Join(words, " "), problem)
			}
		}
	}
	if count < 20 {
		t.Errorf("the pages have %d commands of go test", count)
	}
}

// TestMakeOfTheDocs: each target of make that a page names is in the Makefile, and each variable of
// the tests is one that a test, or what runs them, reads.
func TestMakeOfTheDocs(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	variables, err := exec.Command("sh", "-c", "grep -rhoE 'MILLRACE_[A-Z]+(_[A-Z]+)*' --include=*.go "+
		"--exclude=docs_*_test.go ../../bench ../../client ../../cmd ../../deploy ../../internal "+
		"../../torture; cat ../../.ci/run").Output()
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:^|[;&] )make ([a-z-]+)|\b(MILLRACE(?:_[A-Z]+)+)\b`)
	count := 0
	for name, page := range allPages(t) {
		for _, code := range codeOf(page) {
			for _, found := range named.FindAllStringSubmatch(code, -1) {
				count++
				isTarget := strings.Contains(string(makefile), "\n"+found[1]+":")
				isRead := regexp.MustCompile(`\b` + found[2] + `\b`).Match(variables)
				if (found[1] != "" && !isTarget) || (found[2] != "" && !isRead) {
					t.Errorf("%s names %s", name, found[0])
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("the pages name %d targets and variables", count)
	}
}

// wrongGoTest says what a command of `go test` names that is not there. Its folder is that of the
// repository, or one below it, from which packages begin with two dots.
func wrongGoTest(t *testing.T, words []string) string {
	t.Helper()
	own := []string(nil)
	if end := slices.Index(words, "-args"); end >= 0 {
		words, own = words[:end], words[end+1:]
	}
	source, patterns := "", map[string]string{}
	isOwn := func(flag string) bool {
		return regexp.MustCompile(`flag\.\w+\("` + flag + `"`).MatchString(source)
	}
	for i := 0; i < len(words); i++ {
		flag, isFlag := strings.CutPrefix(words[i], "-")
		switch {
		case isFlag && !slices.Contains(goFlags, flag) && !isOwn(flag):
			return "go test is not known to have -" + flag
		case isFlag && flag != "v" && flag != "c" && !isOwn(flag):
			i++
			if i == len(words) {
				return "there is nothing behind -" + flag
			}
			patterns[flag] = strings.Trim(words[i], `'"`)
		case !isFlag && words[i] != "./...":
			folder := strings.Replace(words[i], "../", "./", 1)
			files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
			if err != nil || len(files) == 0 {
				return "there are no tests in " + words[i]
			}
			source += testsOf(t, folder)
		}
	}
	for flag, kind := range map[string]string{"run": "Test", "bench": "Benchmark", "fuzz": "Fuzz"} {
		pattern, _, _ := strings.Cut(patterns[flag], "/")
		if pattern == "" || (flag == "run" && (pattern == "^$" || pattern == "xxx")) {
			continue // which runs no tests, but benchmarks
		}
		for alternative := range strings.SplitSeq(pattern, "|") {
			named := `(?m)^func ` + kind + `\w*` + alternative + `|^func ` + alternative
			if !regexp.MustCompile(named).MatchString(source) {
				return "no " + kind + " matches " + alternative
			}
		}
	}
	for _, word := range own {
		if flag, isFlag := strings.CutPrefix(word, "-"); isFlag && !isOwn(flag) {
			return "its tests have no flag -" + flag
		}
	}
	return ""
}

// testsOf is the source of the tests of a folder.
func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files := filepath.Join("../..", folder, "*_test.go")
	out, err := exec.Command("sh", "-c", "cat "+files).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A command that names what is not there is found.
func TestWrongGoTest(t *testing.T) {
	t.Parallel()
	for command, isRight := range map[string]bool{
		"./torture": true, "./tortures": false, "-tiemout 0 ./torture": false,
		"./torture -run TestCrashPoints -timeout 0 -v": true, "./torture -run": false,
		"./torture -run TestCrashPoint5":                           false,
		"-run xxx -bench FindCycle -benchtime 10x ../internal/job": true,
		"-run xxx -bench LoseCycle ../internal/job":                false,
		"./cmd/millrace -run TestHostileLoad -args -hostile 1":     true,
		"./cmd/millrace -run TestHostileLoad -args -friendly 1":    false,
	} {
		if problem := wrongGoTest(t, strings.Fields(command)); (problem == "") != isRight {
			t.Errorf("%s: %q", command, problem)
		}
	}
}
