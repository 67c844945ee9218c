package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checked forgets what a parser returns beside its error.
func checked[S any](parse func([]string, io.Writer) (S, error)) func([]string) error {
	return func(args []string) error {
		_, err := parse(args, io.Discard)
		return err
	}
}

// parsers are those of the subcommands; "" is the command without one. The others take no flags on
// any page.
var parsers = map[string]func([]string) error{"": checked(parse), "admin": checked(parseAdmin),
	"ageing": checked(parseAgeing), "curves": checked(parseCurves), "nodes": checked(parseNodes),
	"pair": checked(parsePair), "sizes": checked(parseSizes), "webhooks": checked(parseWebhooks),
	"submissions": checked(parseSubmissions), "watchers": checked(parseWatchers),
	"idle":   checked(parseIdle),
	"counts": func(args []string) error { return nil }}

// TestCommandsOfThePages: each command of this module on a page has flags and cases that there are.
// TestRunsOfThePages runs those of bench/README.md and of documents with few jobs. An ellipsis
// stands for more cases, or for a folder.
func TestCommandsOfThePages(t *testing.T) {
	t.Parallel()
	pages, counts := []string{"../bench/README.md"}, map[string]int{}
	for _, pattern := range []string{"../docs/*.md", "../docs/decisions/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, files...)
	}
	block := regexp.MustCompile("(?ms)^```.*?^```$")
	inText := regexp.MustCompile("`[^`]*go run \\. ([^`]+)`")
	inBlock := regexp.MustCompile(`(?m)^(?:cd bench && )?go run \.(?: ([^#\n]*))?$|^go run \.( .*?) +#`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		commands := inText.FindAllStringSubmatch(block.ReplaceAllString(string(text), ""), -1)
		for _, one := range block.FindAllString(string(text), -1) {
			commands = append(commands, inBlock.FindAllStringSubmatch(one, -1)...)
		}
		for _, command := range commands {
			counts[filepath.Dir(page)]++
			line := strings.NewReplacer("-other …", "-other .", "-other FOLDER case", "-other . river",
				"'", "", "…", "").Replace(strings.Join(command[1:], ""))
			args, name := strings.Fields(line), ""
			if len(args) > 0 && parsers[args[0]] != nil {
				name, args = args[0], args[1:]
			}
			if err := parsers[name](args); err != nil {
				t.Errorf("%s has %q: %v", page, command[0], err)
			}
		}
	}
	if counts["../docs"] < 25 || counts["../bench"] < 45 || counts["../docs/decisions"] < 5 {
		t.Errorf("the pages have so many commands: %v", counts)
	}
}
