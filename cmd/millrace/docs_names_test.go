package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// guides are the documents for users and the pages of the clients, by the names of their files.
func guides(t *testing.T) map[string]string {
	t.Helper()
	all := documents(t)
	for _, name := range []string{"clients/python/README.md", "clients/typescript/README.md",
		"client/doc.go"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

var codeBlock = regexp.MustCompile("(?ms)^ *```(\\w*)[^\n]*\n(.*?)^ *```")

// codeOf returns the code of a page: the spans in its text, and the lines of its blocks, of which
// those that a backslash continues are one.
func codeOf(page string) (all []string) {
	for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.Split(strings.ReplaceAll(block[2], "\\\n", " "), "\n")...)
	}
	return append(all, spansOf(page)...)
}

// spansOf returns the code in the text of a page.
func spansOf(page string) (all []string) {
	text := codeBlock.ReplaceAllString(page, "")
	for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Join(strings.Fields(span[1]), " "))
	}
	return all
}

// shellWord is a word of a command line, as far as pages have them.
var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// TestCommandLinesOfTheDocs (CL-001): each command line of millrace on any page names a command
// that there is, with flags that it has.
func TestCommandLinesOfTheDocs(t *testing.T) {
	t.Parallel()
	root := rootCommand(cli.Process{Environ: []string{}, Now: time.Now, Stdout: &bytes.Buffer{},
		Stderr: &bytes.Buffer{}})
	line := regexp.MustCompile(`(?:^|[|(&;] ?|=\S* )millrace ((?:-|[a-z])[^|;&)#>]*)`)
	count := 0
	for name, page := range allPages(t) {
		for _, code := range codeOf(page) {
			for _, found := range line.FindAllStringSubmatch(code, -1) {
				count++
				if problem := wrongLine(root, shellWord.FindAllString(found[1], -1)); problem != "" {
					t.Errorf("%s has `millrace %s`: %s", name, found[1], problem)
				}
			}
		}
	}
	if count < 150 {
		t.Errorf("the pages have %d command lines", count)
	}
}

// wrongLine says what a command line names that is not there.
func wrongLine(root *cobra.Command, words []string) string {
	if end := slices.Index(words, "--"); end >= 0 {
		words = words[:end] // what follows is a command of somebody else
	}
	c, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	for i, word := range rest {
		flag, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch isFlag := strings.HasPrefix(word, "-") && flag != ""; {
		case isFlag && c.Flag(flag) == nil && c.InheritedFlags().ShorthandLookup(flag[:1]) == nil &&
			c.Flags().ShorthandLookup(flag[:1]) == nil && flag != "help" && flag != "version":
			return c.CommandPath() + " has no flag --" + flag
		case i == 0 && !isFlag && c.HasSubCommands() && !c.Runnable():
			return c.CommandPath() + " has no command " + word
		}
	}
	return ""
}

// settingNames are the settings of docs/reference/settings.md. Where a setting is one of each of
// many names, such as those of queues, it has an asterisk in the place of the name.
func settingNames(t *testing.T) (known []string) {
	t.Helper()
	reference, err := os.ReadFile("../../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	of := ""
	row := regexp.MustCompile("^(?:### `\\[([a-z_.]+)\\.NAME\\]`|\\| `([^`]+)` \\||## )")
	for line := range strings.Lines(string(reference)) {
		switch found := row.FindStringSubmatch(line); {
		case found == nil:
		case found[2] != "":
			known = append(known, of+found[2])
		case found[1] != "":
			of = found[1] + ".*."
		default:
			of = ""
		}
	}
	if len(known) < 150 {
		t.Fatalf("there are %d settings", len(known))
	}
	return known
}

// isSetting reports whether a text is a setting, or the section of some.
func isSetting(known []string, text string) bool {
	text, _, _ = strings.Cut(text, ".options.") // whose members are the handler's own
	own := strings.Split(text, ".")
	return slices.ContainsFunc(known, func(one string) bool {
		parts := strings.Split(one, ".")
		if len(parts) < len(own) {
			return false
		}
		for i, part := range own {
			if parts[i] != part && parts[i] != "*" {
				return false
			}
		}
		return true
	})
}

// TestSettingsOfTheDocs: each setting that a page names is there, in text, as an argument of --set
// and as a variable of the environment.
func TestSettingsOfTheDocs(t *testing.T) {
	t.Parallel()
	known, sections := settingNames(t), []string{}
	for _, one := range known {
		if section, _, nested := strings.Cut(one, "."); nested {
			sections = append(sections, section)
		}
	}
	slices.Sort(sections)
	events, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`^((?:` + strings.Join(slices.Compact(sections), "|") +
		`)(?:\.[a-zA-Z_]+)+)(?:$| ?=)|--set ([a-z_.]+)=|\bMILLRACE__([A-Z_]+)`)
	others := []string{"key", "section.key", "fetchbox.task", "images.purge", "worker.mjs",
		"proxy.primary", "proxy.fallbacks", // of which these two are of a type of jobs
		"egress.retryafter"} // and this is of Go
	count := 0
	for name, page := range allPages(t) {
		for _, code := range codeOf(page) {
			for _, found := range named.FindAllStringSubmatch(code, -1) {
				text := strings.ToLower(strings.ReplaceAll(strings.Join(found[1:], ""), "__", "."))
				of, _, _ := strings.Cut(text, ".")
				if strings.HasPrefix(name, "clients/") && classOf(of) != "" {
					continue // a member of a client, for TestMembersOfTheDocs
				}
				count++
				if !isSetting(known, text) && !slices.Contains(others, text) &&
					!strings.Contains(string(events), "`"+text+"`") {
					t.Errorf("%s has the setting %s in %q", name, text, code)
				}
			}
		}
	}
	if count < 100 {
		t.Errorf("the pages name %d settings", count)
	}
}

// TestFilesOfSettingsInTheDocs: the binary takes every file of settings that a page shows, with its
// values. What a page leaves to the environment is there, and so are the files of a certificate; an
// ellipsis stands for a token.
func TestFilesOfSettingsInTheDocs(t *testing.T) {
	t.Parallel()
	binary, dir, count := mustMillrace(t), t.TempDir(), 0
	cert, key := certificateFiles(t)
	for name, file := range map[string]string{"tls.crt": cert, "tls.key": key} {
		if err := os.Rename(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, page := range allPages(t) {
		for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
			if block[1] != "toml" {
				continue
			}
			count++
			mustWriteFile(t, dir, "millrace.toml", []byte(strings.NewReplacer(
				"/etc/millrace/", dir+"/", `"…"`, `"0123456789abcdef0123"`).Replace(block[2])))
			c := boundedCommand(t, binary, "config", "--config", "millrace.toml")
			c.Dir = dir
			c.Env = append(os.Environ(), "MILLRACE__TOKEN=0123456789abcdef0123",
				"MILLRACE__OPERATOR__TOKEN=secret")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s in\n%s", name, err, out, block[2])
			}
		}
	}
	if count < 15 {
		t.Errorf("the pages have %d files of settings", count)
	}
}

// TestRoutesOfTheDocs: each route that a page names, in text or as what curl asks for, is one of
// the API, or of those beside it.
func TestRoutesOfTheDocs(t *testing.T) {
	t.Parallel()
	routes := documentedRoutes(t)
	for _, path := range []string{"/", "/health", "/health/ready", "/health/live", "/metrics",
		"/metrics/{contract}", "/metrics/{contract}/{component}", "/console", "/docs", "/openapi",
		"/openapi/{file}"} {
		routes = append(routes, "GET "+path)
	}
	routes = append(routes, "POST /console/logout", "GET /console/files/{id}/variants/{size}")
	named := regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE|HEAD) (…?/\S*)|` +
		`()(?:localhost|127\.0\.0\.1):8080(/[^\s"')]*)|()\$URL(/[^\s"')]*)|^()(/[a-z0-9]+/[^\s"']*)$`)
	count := 0
	for name, page := range allPages(t) {
		for _, code := range codeOf(page) {
			for _, found := range named.FindAllStringSubmatch(code, -1) {
				method, path := found[1], strings.Join(found[2:], "")
				path, _, _ = strings.Cut(strings.TrimSuffix(path, ";"), "?")
				path = regexp.MustCompile(`\$\(.*|\$1$|[*…]$`).ReplaceAllString(path, "")
				isFile := slices.ContainsFunc([]string{"/etc/", "/var/", "/tmp/", "/run/", "/usr/",
					"/home/", "/dev/", "/proc/"}, func(one string) bool { return strings.HasPrefix(path, one) })
				if isFile || strings.Contains(path, "/../") { // which a server refuses
					continue
				}
				count++
				if !slices.ContainsFunc(routes, func(one string) bool {
					return isRoute(one, method, path)
				}) {
					t.Errorf("%s has the route %s %s in %q", name, method, path, code)
				}
			}
		}
	}
	if count < 100 {
		t.Errorf("the pages name %d routes", count)
	}
}

// isRoute reports whether a method, if there is one, and a path are of a route. Of the path there
// may be the end, behind an ellipsis, or the beginning, which ends in a slash or names a version of
// an API. A name in braces is any part.
func isRoute(route, method, path string) bool {
	of, template, _ := strings.Cut(route, " ")
	if method != "" && of != method && (method != http.MethodHead || of != http.MethodGet) {
		return false
	}
	if path == "/" {
		return template == path
	}
	isPart := strings.HasSuffix(path, "/") ||
		regexp.MustCompile(`^/[a-z0-9/]*v[0-9]$`).MatchString(path)
	own, parts := strings.Split(strings.TrimSuffix(path, "/"), "/"), strings.Split(template, "/")
	if own[0] == "…" && len(parts) > len(own) {
		own, parts = own[1:], parts[len(parts)-len(own)+1:]
	}
	if len(parts) < len(own) || (len(parts) > len(own) && !isPart) {
		return false
	}
	for i, part := range own {
		if parts[i] != part && !strings.HasPrefix(parts[i], "{") && !strings.HasPrefix(part, "{") {
			return false
		}
	}
	return true
}

// TestFilesOfTheDocs: each file of the repository that a page names in its code is there.
func TestFilesOfTheDocs(t *testing.T) {
	t.Parallel()
	file := regexp.MustCompile(`(?:^|[\s"'=(]|\./|millrace/)((?:\.ci|bench|client|clients|cmd|deploy|docs|` +
		`internal|torture)/[\w./*-]*\w)`)
	count := 0
	for name, page := range allPages(t) {
		for _, code := range codeOf(page) {
			for _, found := range file.FindAllStringSubmatch(code, -1) {
				// What make image-context, bench and releases make, and a folder of Faktory's.
				isMade := strings.HasPrefix(found[1], "deploy/image") || slices.Contains([]string{
					"docs/img/NAME.svg", "clients/typescript.tgz", "clients/go", "cmd/faktory"}, found[1])
				count++
				files, err := filepath.Glob(filepath.Join("..", "..", found[1]))
				if (err != nil || len(files) == 0) && !isMade {
					t.Errorf("%s names %s in %q", name, found[1], code)
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("the pages name %d files", count)
	}
}

// partOfHistogram ends the name of a series of a histogram.
var partOfHistogram = regexp.MustCompile("_(bucket|sum|count)$")

// TestMetricsOfTheDocs: each metric that a page names is there.
func TestMetricsOfTheDocs(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(
		`^((?:millrace|relay|forgerun|taskflow|fetchbox|images|webhook)_[a-z_]+_[a-z]+)(?:\{.*)?$`)
	count := 0
	for name, page := range allPages(t) {
		for _, code := range spansOf(page) {
			for _, found := range metric.FindAllStringSubmatch(code, -1) {
				text := partOfHistogram.ReplaceAllString(found[1], "")
				count++
				if !strings.Contains(string(reference), "`"+text+"`") {
					t.Errorf("%s has the metric %s in %q", name, found[1], code)
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("the pages name %d metrics", count)
	}
}

// TestGoNamesOfTheDocs: what pages name of the Go client is there.
func TestGoNamesOfTheDocs(t *testing.T) {
	t.Parallel()
	text := ""
	for name, page := range allPages(t) {
		if strings.HasSuffix(name, ".md") {
			text += page
		}
	}
	checkGoNames(t, text)
}

// documentedRoutes returns the routes of all OpenAPI documents, as "GET /path".
func documentedRoutes(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../../internal/*/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../internal/contract/*/openapi.yaml")
	if err != nil || len(files)+len(more) != 7 {
		t.Fatalf("%d OpenAPI documents, want 7: %v", len(files)+len(more), err)
	}
	line := regexp.MustCompile(`(?m)^(?:  (/\S*)|    (get|post|put|patch|delete)):`)
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := ""
		for _, found := range line.FindAllStringSubmatch(string(text), -1) {
			if found[1] != "" {
				path = found[1]
				continue
			}
			all = append(all, strings.ToUpper(found[2])+" "+path)
		}
	}
	return all
}

// checkGoNames looks for the exported names of the Go client, and of its package pgtx, in a text.
func checkGoNames(t *testing.T, text string) {
	t.Helper()
	source := map[string]string{}
	for name, pattern := range map[string]string{"client": "../../client/*.go",
		"pgtx": "../../client/pgtx/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source[name] += string(code)
		}
	}
	names := regexp.MustCompile(`(?:^|[^.\w])(client|pgtx)\.([A-Z]\w+)`).FindAllStringSubmatch(text, -1)
	if len(names) < 10 {
		t.Errorf("the pages have %d names of the client", len(names))
	}
	for _, name := range names {
		declared := regexp.MustCompile(`(?m)^(?:func|type|\t)\s*` + name[2] + `\b`)
		if !declared.MatchString(source[name[1]]) {
			t.Errorf("there is no %s.%s", name[1], name[2])
		}
	}
}
