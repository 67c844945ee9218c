package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// fencedBlock is a block of a page, with the word behind its fence.
var fencedBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// languageOf has the language of blocks that are run.
var languageOf = map[string]string{"sh": "curl", "python": "Python", "go": "Go", "js": "TypeScript"}

// sectionsOf returns the sections of a page, in their order. Each begins with its heading.
func sectionsOf(page string) []string { return strings.Split(page, "\n## ")[1:] }

// tabGroup is a group of tabs of a page.
var tabGroup = regexp.MustCompile(`(?s)\n<!-- tabs -->\n(.*?)\n<!-- /tabs -->\n`)

// inLanguage is a section as somebody reads it who has chosen a language. has reports whether it
// has a tab of that; of a group without one, and with no language at all, the first tab is read.
func inLanguage(section, language string) (text string, has bool) {
	text = tabGroup.ReplaceAllStringFunc(section, func(group string) string {
		heads := regexp.MustCompile(`(?m)^\*\*(\w+)\*\*$`).FindAllStringSubmatchIndex(group, -1)
		chosen := 0
		for i, at := range heads {
			if group[at[2]:at[3]] == language {
				chosen, has = i, true
			}
		}
		end := len(group)
		if chosen+1 < len(heads) {
			end = heads[chosen+1][0]
		}
		return group[heads[chosen][1]:end]
	})
	return text, has
}

// follow runs the blocks of a section in their order. A block of text is what those before it have
// printed since the last one; a block of TOML is the file millrace.toml of the folder.
func (r *reader) follow(section string) {
	r.Helper()
	name, _, _ := strings.Cut(section, "\n")
	printed := ""
	for _, block := range fencedBlock.FindAllStringSubmatch(section, -1) {
		switch language := block[1]; language {
		case "text":
			if line := missingLine(block[2], printed); line != "" {
				r.Errorf("%s does not print %q after the lines before it:\n%s", name, line, printed)
			}
			printed = ""
		case "toml":
			mustWriteFile(r.T, r.app, "millrace.toml", []byte(block[2]))
		default:
			printed += r.run(tabbed{name, languageOf[language], block[2]}, "", false)
		}
	}
	if printed != "" {
		r.Errorf("%s does not say what its last commands print:\n%s", name, printed)
	}
}

// missingLine returns the first line of want that output does not have, in their order; "" if there
// is none. In want … stands for any text, and a blank for several.
func missingLine(want, output string) string {
	for line := range strings.Lines(want) {
		line = strings.TrimSuffix(line, "\n")
		pattern := regexp.QuoteMeta(line)
		pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, " ", " +"), "…", ".*")
		at := regexp.MustCompile(`(?m)^ *` + pattern + ` *$`).FindStringIndex(output)
		if at == nil {
			return line
		}
		output = output[at[1]:]
	}
	return ""
}

// A line of a page is found where it stands, after those before it, and as a whole.
func TestMissingLine(t *testing.T) {
	t.Parallel()
	const output = "a  b\nc 12 d\n201\n"
	for want, missing := range map[string]string{
		"a b\n201\n": "", "a b\nc … d\n": "", "…2 d\n": "", "a b\nc 12 d\n201\n": "",
		"201\na b\n": "a b", "20\n": "20", "c … e\n": "c … e", "201\n201\n": "201",
	} {
		if got := missingLine(want, output); got != missing {
			t.Errorf("of %q is missing %q, want %q", want, got, missing)
		}
	}
}

// Each recipe of docs/recipes.md prints what the page says, all on one server, and those with tabs
// in each of the other languages, on another one each. The backfill has fewer jobs.
func TestRecipesOfTheDocs(t *testing.T) {
	t.Parallel()
	const users = "2000"
	sections := sectionsOf(documents(t)["docs/recipes.md"])
	if len(sections) != 7 {
		t.Errorf("the page has %d recipes, want 7", len(sections))
	}
	for language, want := range map[string]int{"": len(sections), "Go": 5, "Python": 5,
		"TypeScript": 4} {
		t.Run("in "+language, func(t *testing.T) {
			t.Parallel()
			shared, ran := newReader(t), 0
			shared.environ = append(shared.environ, "N="+users)
			if language == "TypeScript" {
				outside.InstallClient(t, filepath.Join(shared.root, "clients", "typescript"), shared.app)
			}
			for _, whole := range sections {
				name, _, _ := strings.Cut(whole, "\n")
				section, has := inLanguage(whole, language)
				if language != "" && !has {
					continue
				}
				ran++
				t.Run(name, func(t *testing.T) {
					r := *shared
					r.T = t
					// The page has the number twice: as what N is without a value, and as printed.
					r.follow(strings.ReplaceAll(section, "\n1000000 ", "\n"+users+" "))
					settings := filepath.Join(r.app, "millrace.toml")
					if _, err := os.Stat(settings); err == nil {
						const try = "millrace config --config millrace.toml >/dev/null && " +
							"rm millrace.toml"
						r.run(tabbed{name, "curl", try}, "", false)
					}
				})
			}
			if ran != want {
				t.Errorf("%d recipes were followed, want %d", ran, want)
			}
		})
	}
}
