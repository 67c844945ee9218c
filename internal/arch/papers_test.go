package arch

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// paperLines limits the lines of the papers that are read first.
var paperLines = map[string]int{"README.md": 150, "ARCHITECTURE.md": 150, "docs/glossary.md": 80}

// TestPapers checks the length of the papers that are read first, and that at most one line in a
// hundred of all papers is too long. Tables, examples and lines with a link have the length that
// they need.
func TestPapers(t *testing.T) {
	t.Parallel()
	var long []string
	sum := 0
	for path, text := range papers(t) {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if limit, ok := paperLines[path]; ok && len(lines) > limit {
			t.Errorf("%s has %d lines, more than %d", path, len(lines), limit)
		}
		sum += len(lines)
		example := false
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				example = !example
			}
			columns := utf8.RuneCountInString(line)
			if columns > maxColumns && !example && !strings.HasPrefix(line, "|") &&
				!strings.Contains(line, "](") && !strings.Contains(line, "://") {
				long = append(long, fmt.Sprintf("%s:%d", path, i+1))
			}
		}
	}
	if len(long)*100 > sum {
		t.Errorf("%d of %d lines have more than %d columns: %v", len(long), sum, maxColumns, long)
	}
}

// TestTreeOfTheArchitecture: the tree of ARCHITECTURE.md has folders that there are, and all that
// are directly below internal.
func TestTreeOfTheArchitecture(t *testing.T) {
	t.Parallel()
	tree := regexp.MustCompile("(?s)```\n(.*?)```").FindStringSubmatch(
		papers(t)["ARCHITECTURE.md"])
	if tree == nil {
		t.Fatal("ARCHITECTURE.md has no tree")
	}
	folders := regexp.MustCompile(`^( *)((?:[\w./]+/ )*[\w./]+/)(?: |$)`)
	parents, seen := map[int]string{}, map[string]bool{}
	for line := range strings.Lines(tree[1]) {
		found := folders.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if found == nil {
			t.Errorf("the tree has %q, which begins with no folder", line)
			continue
		}
		indent, names := len(found[1]), strings.Fields(found[2])
		above := parents[indent-2]
		parents[indent] = path.Join(above, names[0])
		for _, name := range names {
			folder := path.Join(above, name)
			seen[folder] = true
			if info, err := os.Stat(path.Join("../..", folder)); err != nil || !info.IsDir() {
				t.Errorf("the tree has %s, which is no folder: %v", folder, err)
			}
		}
	}
	below, err := os.ReadDir("..")
	if err != nil || len(below) < 30 {
		t.Fatal(len(below), err)
	}
	for _, folder := range below {
		if !seen["internal/"+folder.Name()] {
			t.Errorf("the tree does not have internal/%s", folder.Name())
		}
	}
}

// TestSearchesOfTheArchitecture: what ARCHITECTURE.md has a reader search for is in many files.
func TestSearchesOfTheArchitecture(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	searches := regexp.MustCompile("`git grep ([^`]+)`").FindAllStringSubmatch(
		papers(t)["ARCHITECTURE.md"], -1)
	if len(searches) == 0 {
		t.Error("ARCHITECTURE.md has no search")
	}
	for _, search := range searches {
		arguments := append([]string{"grep"}, strings.Fields(search[1])...)
		if _, err := os.Stat("../../.git"); err != nil { // in a copy without its history
			arguments = slices.Insert(arguments, 1, "--no-index")
		}
		c := exec.CommandContext(t.Context(), "git", arguments...)
		c.Dir = "../.."
		out, err := c.Output()
		if found := strings.Count(string(out), "\n"); (err != nil) || (found < 10) {
			t.Errorf("git grep %s finds %d files: %v", search[1], found, err)
		}
	}
}

// papers returns the Markdown files of the project by their paths.
func papers(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && path != "."
		if d.IsDir() && (hidden || d.Name() == "node_modules" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		all[path] = string(text)
		return err
	})
	if err != nil || all["README.md"] == "" {
		t.Fatalf("found %d papers: %v", len(all), err)
	}
	return all
}
