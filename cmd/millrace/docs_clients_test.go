package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// clientLanguage is a client, by its source. In a pattern CLASS stands for the names of types, and
// NAME for that of a member of them.
type clientLanguage struct {
	files   string
	member  string
	error   string // declares a type of errors
	readme  string // the page of this client alone
	written *regexp.Regexp
}

// clientLanguages are the clients. A text that is written as several of them have it may be of any
// of these.
var clientLanguages = map[string]clientLanguage{
	"Go": {files: "client/*.go", written: regexp.MustCompile(`\.[A-Z]\w*$`),
		error: `(?m)^var NAME\b`,
		member: `(?m)^func \((?:\w+ )?\*?(?:CLASS)\) NAME\(|` +
			`^type (?:CLASS) struct \{[^}]*\n\t(?:\w+, )*NAME\b`},
	"Python": {files: "clients/python/millrace/*.py", readme: "clients/python/README.md",
		written: regexp.MustCompile(`^[^A-Z]*\.[a-z_]+$|^[A-Z]\w*\.[a-z_]+$`),
		error:   `(?m)^class NAME\(`,
		member: `(?m)^class (?:CLASS)\b.*\n(?:(?: .*)?\n)*?` +
			`(?: {4}(?:def )?NAME\b *[(:=]| {8}self\.NAME\b)`},
	"TypeScript": {files: "clients/typescript/src/*.ts", readme: "clients/typescript/README.md",
		written: regexp.MustCompile(`^[^_]*\.[a-z][a-zA-Z]*$`),
		error:   `(?m)^export class NAME\b`,
		member: `(?m)^export (?:class|interface) (?:CLASS)\b.*\n(?:(?: .*)?\n)*?` +
			` {2}(?:(?:async|get|readonly|static) )*\*?NAME\??[<(:]`},
}

// classesOf are the types that have the members behind a name in the text of a page.
var classesOf = map[string]string{"c": "Client", "client": "Client", "run": "Run|JobRun|HandlerRun",
	"worker": "Worker|JobWorker", "relay": "Relay", "taskFlow": "TaskFlow", "flow": "TaskFlow",
	"forgeRun": "ForgeRun", "fetchBox": "FetchBox", "images": "Images", "admin": "Admin",
	"workerAPI": "WorkerAPI", "api": "WorkerAPI", "err": "MillraceError", "Error": "Error"}

// classOf returns the types behind a name, in the spelling of any language; "" if there are none.
func classOf(name string) string {
	if class := classesOf[name]; class != "" {
		return class
	}
	for known, class := range classesOf {
		if strings.EqualFold(known, strings.ReplaceAll(strings.TrimSuffix(name, "()"), "_", "")) {
			return class
		}
	}
	return ""
}

// TestMembersOfTheDocs: each member of a client that the text of a page names, such as
// `relay.claim` or `TaskFlow().Submit`, is there, in a language in which it may be written so.
func TestMembersOfTheDocs(t *testing.T) {
	t.Parallel()
	known, source := settingNames(t), map[string]string{}
	for language, c := range clientLanguages {
		source[language] = sourceOf(t, c.files)
	}
	events, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	// The types of jobs, and what every error of JavaScript has.
	others := string(events) + "`images.purge`, `fetchbox.task`, `err.message`"
	actions := sourceOf(t, "internal/admin/*.go") + sourceOf(t, "cmd/millrace/*.go") // of the audit
	span := regexp.MustCompile(`^(?:\w+(?:\(\))?\.)+\w+`)
	count := 0
	for name, page := range guides(t) {
		for _, code := range spansOf(page) {
			text := span.FindString(code)
			names := strings.Split(text, ".")
			if text == "" || isSetting(known, text) || isFileName(text) ||
				strings.Contains(others, "`"+text+"`") || strings.Contains(others, "`"+text+".") ||
				strings.Contains(actions, `"`+text+`"`) {
				continue
			}
			for i, member := range names[1:] {
				classes := classOf(names[i])
				if classes == "" || (names[i] == "client" && len(names) == 2 &&
					regexp.MustCompile("^[A-Z]").MatchString(member)) {
					continue // of somebody else, or of the package client, which checkGoNames has
				}
				count++
				if !isMember(name, text, classes, strings.TrimSuffix(member, "()"), source) {
					t.Errorf("%s: no client has %s of %s in %q", name, member, classes, code)
				}
			}
		}
	}
	if count < 35 {
		t.Errorf("the pages name %d members of clients", count)
	}
}

// isMember reports whether types have a member in the source of a language that the text of a page
// may be of.
func isMember(page, text, classes, member string, source map[string]string) bool {
	for language, c := range clientLanguages {
		isOther := strings.HasPrefix(page, "clients/") && page != c.readme
		if isOther || !c.written.MatchString(strings.ReplaceAll(text, "()", "")) {
			continue
		}
		pattern := strings.NewReplacer("CLASS", classes, "NAME", member).Replace(c.member)
		if regexp.MustCompile(pattern).MatchString(source[language]) {
			return true
		}
	}
	return false
}

// isFileName reports whether a text ends as the name of a file does.
func isFileName(text string) bool {
	return regexp.MustCompile(`\.(md|go|py|mjs|ts|toml|ini|db|service|rb|exe)$`).
		MatchString(text)
}

// sourceOf is the source of all files of a pattern, of which tests are none.
func sourceOf(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", pattern))
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(append(text, '\n'))
	}
	return all.String()
}

// TestErrorsOfTheDocs: each class of errors that a page names is one of a client, or of a language.
func TestErrorsOfTheDocs(t *testing.T) {
	t.Parallel()
	others := map[string]bool{"TimeoutError": true, "NameError": true,
		"UnrecoverableError": true} // of Python, and of BullMQ
	class, count := regexp.MustCompile(`\b[A-Z]\w+Error\b`), 0
	source := map[string]string{}
	for language, c := range clientLanguages {
		source[language] = sourceOf(t, c.files)
	}
	for name, page := range guides(t) {
		for _, code := range spansOf(page) {
			for _, found := range class.FindAllString(code, -1) {
				count++
				declared := others[found]
				for language, c := range clientLanguages {
					isOther := strings.HasPrefix(name, "clients/") && name != c.readme
					pattern := strings.ReplaceAll(c.error, "NAME", found)
					declared = declared || (!isOther &&
						regexp.MustCompile(pattern).MatchString(source[language]))
				}
				if !declared {
					t.Errorf("%s: no client has the error %s", name, found)
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("the pages name %d errors", count)
	}
}
