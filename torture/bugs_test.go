package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestBugsApply: every seeded bug still applies to the source, so that none is a bug no longer
// without anybody seeing it.
func TestBugsApply(t *testing.T) {
	t.Parallel()
	root, bugs := mustReadBugs(t)
	for _, b := range bugs {
		if replaced, err := b.apply(root, t.TempDir()); err != nil || len(replaced) == 0 {
			t.Errorf("bug %s changes %d files: %v", b.name, len(replaced), err)
		}
		if _, _, err := readPlan(b.flags, io.Discard); err != nil {
			t.Errorf("bug %s: %v", b.name, err)
		}
	}
	stale := &seededBug{name: "stale", edits: []edit{{"go.mod", "no such text", ""}}}
	if _, err := stale.apply(root, t.TempDir()); err == nil {
		t.Error("a bug whose text is gone still applies")
	}
}

// TestBugsCompile: the server compiles with every seeded bug. The packages that a bug changes are
// type-checked against the others as they are built without it, which finds what a build would
// refuse, and takes a moment for each bug in place of a build.
func TestBugsCompile(t *testing.T) {
	t.Parallel()
	root, bugs := mustReadBugs(t)
	c := newCompiler(t, root)
	for _, b := range bugs {
		if err := c.check(b, t.TempDir()); err != nil {
			t.Errorf("bug %s: %v", b.name, err)
		}
	}
	for name, text := range map[string]string{
		"unknown name":    "_ = j.NoSuchField",
		"unused variable": "unused := 1",
		"no Go":           "if {",
	} {
		broken := &seededBug{name: name, edits: []edit{{"internal/engine/transition.go",
			"j.FailedAttempts++", text}}}
		if err := c.check(broken, t.TempDir()); err == nil {
			t.Errorf("a bug with %s compiles", name)
		}
	}
}

// mustReadBugs returns the directory of the module and all seeded bugs.
func mustReadBugs(t *testing.T) (root string, bugs []*seededBug) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, err := bugNames()
	if err != nil || len(names) < 30 {
		t.Fatalf("found %d bugs: %v", len(names), err)
	}
	for _, name := range names {
		b, err := readBug(name)
		if err != nil {
			t.Fatal(err)
		}
		bugs = append(bugs, b)
	}
	return root, bugs
}

// listTimeout bounds the build of the packages that the changed ones import.
const listTimeout = 5 * time.Minute

// compiler type-checks packages of the server with some of their files replaced.
type compiler struct {
	root     string
	packages map[string]goPackage // by directory
	files    *token.FileSet
	importer types.Importer
}

// goPackage is a package as go list writes it. Export is the file with what it exports.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// newCompiler lists the packages of the server, which builds them where that was not done yet.
func newCompiler(t *testing.T, root string) *compiler {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), listTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles", "./cmd/millrace")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	c := &compiler{root: root, packages: map[string]goPackage{}, files: token.NewFileSet()}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c.packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	c.importer = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("the server does not import %s", path)
		}
		return os.Open(exports[path])
	})
	return c
}

// check type-checks the packages that a bug changes.
func (c *compiler) check(b *seededBug, dir string) error {
	replaced, err := b.apply(c.root, dir)
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	for path := range replaced {
		changed[filepath.Dir(path)] = true
	}
	for at := range changed {
		p, known := c.packages[at]
		if !known {
			return fmt.Errorf("%s is no package of the server", at)
		}
		if err := c.checkPackage(p, replaced); err != nil {
			return err
		}
	}
	return nil
}

// checkPackage type-checks one package.
func (c *compiler) checkPackage(p goPackage, replaced map[string]string) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		f, err := parser.ParseFile(c.files, cmp.Or(replaced[path], path), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	_, err := (&types.Config{Importer: c.importer}).Check(p.ImportPath, c.files, files, nil)
	return err
}
