package arch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A copy is a run of copyLines lines that stand somewhere else too. A renamed copy has the same
// shape alone, with other names and values, and has renamedLines: the shapes of short runs are
// alike by themselves.
const copyLines, renamedLines = 6, 16

// maxDuplicates is how many lines of the product may be copies. Of each copy that stands in several
// places, the first is none.
const maxDuplicates = 300

// TestDuplicates checks how many lines of the product stand there twice.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	var same, shapes [][]codeLine
	for _, f := range load(t) {
		if f.test {
			continue
		}
		lines := codeOf(f.path, f.src)
		same = append(same, lines)
		shapes = append(shapes, shapesOf(lines))
	}
	copies := copiesIn(same, copyLines)
	renamed := copiesIn(shapes, renamedLines)
	for at := range renamed {
		copies[at] = true
	}
	if len(copies) > maxDuplicates {
		t.Errorf("%d lines of the product are copies, more than %d: %v", len(copies), maxDuplicates,
			ranges(copies))
	}
}

// TestCopiesAreFound checks what counts as a copy.
func TestCopiesAreFound(t *testing.T) {
	t.Parallel()
	const some = "a := 1\nb := \"x\"\n// a comment\n\n}\nreturn a, b\n"
	for _, c := range []struct {
		name         string
		files        []string
		same, shapes int
	}{
		{"another file", []string{some, "f()\n" + some}, 3, 3},
		{"renamed", []string{some, strings.NewReplacer("a", "c", "1", "22").Replace(some)}, 0, 3},
		{"other code", []string{some, "a := f(1)\nb = 2\nreturn\n"}, 0, 0},
		{"overlapping itself", []string{strings.Repeat("f(x)\n", 5)}, 0, 0},
		{"imports", []string{"import (\n\"a\"\n\"b\"\n\"c\"\n)\n", "import (\n\"a\"\n\"b\"\n\"c\"\n)\n"}, 0, 0},
	} {
		var same, shapes [][]codeLine
		for i, text := range c.files {
			same = append(same, codeOf(fmt.Sprint(i), text))
			shapes = append(shapes, shapesOf(same[i]))
		}
		if got, renamed := len(copiesIn(same, 3)), len(copiesIn(shapes, 3)); got != c.same ||
			renamed != c.shapes {
			t.Errorf("%s: %d copies and %d of one shape, want %d and %d", c.name, got, renamed, c.same,
				c.shapes)
		}
	}
}

// codeLine is a line of code with its place, and no white space that does not count.
type codeLine struct {
	text string
	path string
	line int
}

// codeOf returns the lines of a file that count: no comments, imports, package clause, blank lines
// and punctuation that stands alone.
func codeOf(path, src string) (lines []codeLine) {
	isImport := false
	for i, text := range strings.Split(src, "\n") {
		text = strings.Join(strings.Fields(text), " ")
		switch {
		case text == "import (":
			isImport = true
		case isImport:
			isImport = text != ")"
		case strings.HasPrefix(text, "//"), strings.HasPrefix(text, "package "),
			!strings.ContainsFunc(text, unicode.IsLetter):
		default:
			lines = append(lines, codeLine{text, path, i + 1})
		}
	}
	return lines
}

// nameOrValue is a word, number or text of a line; keywords are not told from names.
var nameOrValue = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`?|[\\pL_][\\pL\\d_]*|\\d[\\d_.]*")

// shapesOf returns lines with a letter for each name and value.
func shapesOf(lines []codeLine) []codeLine {
	shapes := slices.Clone(lines)
	for i := range shapes {
		shapes[i].text = nameOrValue.ReplaceAllString(shapes[i].text, "x")
	}
	return shapes
}

// copiesIn returns the places of the lines that belong to a run of n lines which has come before,
// in the order of the files.
func copiesIn(files [][]codeLine, n int) map[place]bool {
	type start struct{ file, line int }
	first, copies := map[string]start{}, map[place]bool{}
	for file, lines := range files {
		for i := 0; i+n <= len(lines); i++ {
			var run strings.Builder
			for _, l := range lines[i : i+n] {
				run.WriteString(l.text + "\n")
			}
			earlier, isCopy := first[run.String()]
			switch {
			case !isCopy:
				first[run.String()] = start{file, i}
			case earlier.file != file || earlier.line+n <= i: // else it overlaps itself
				for _, l := range lines[i : i+n] {
					copies[place{l.path, l.line}] = true
				}
			}
		}
	}
	return copies
}

// place is a line of a file.
type place struct {
	path string
	line int
}

// ranges returns the first and last lines of the runs of places.
func ranges(places map[place]bool) (all []string) {
	const gap = 3 // lines that do not count
	files := map[string][]int{}
	for p := range places {
		files[p.path] = append(files[p.path], p.line)
	}
	for path, lines := range files {
		slices.Sort(lines)
		for len(lines) > 0 {
			n := 1
			for n < len(lines) && lines[n] <= lines[n-1]+gap {
				n++
			}
			all = append(all, fmt.Sprintf("%s:%d-%d", path, lines[0], lines[n-1]))
			lines = lines[n:]
		}
	}
	slices.Sort(all)
	return all
}
