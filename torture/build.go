package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A seeded bug is a file of bugs/: a head, and which text is replaced by which in which file.
//
//	# what the bug is
//	run: -store postgres -only kill     flags of the run that must catch it
//	catch: I1                           the beginning of an invariant that it must violate
//	--- internal/engine/submit.go
//	text that stands in the file once
//	+++
//	text in its place
//
//go:embed bugs/*.bug
var bugFiles embed.FS

// seededBug is one of them.
type seededBug struct {
	name  string
	about string
	flags []string
	catch []string
	edits []edit
}

type edit struct{ path, old, replacement string }

// readBug reads a seeded bug.
func readBug(name string) (*seededBug, error) {
	text, err := bugFiles.ReadFile("bugs/" + name + ".bug")
	if err != nil {
		return nil, fmt.Errorf("there is no seeded bug %q", name)
	}
	head, rest, _ := strings.Cut(string(text), "--- ")
	b := &seededBug{name: name}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if about, ok := strings.CutPrefix(line, "# "); ok {
			b.about = strings.TrimSpace(b.about + " " + about)
		}
		if flags, ok := strings.CutPrefix(line, "run: "); ok {
			b.flags = strings.Fields(flags)
		}
		if kinds, ok := strings.CutPrefix(line, "catch: "); ok {
			b.catch = strings.Split(kinds, ", ")
		}
	}
	for part := range strings.SplitSeq(rest, "\n--- ") {
		path, change, _ := strings.Cut(part, "\n")
		old, replacement, ok := strings.Cut(change, "\n+++\n")
		if !ok {
			return nil, fmt.Errorf("bug %s: a change of %s has no +++", name, path)
		}
		b.edits = append(b.edits, edit{path, old, strings.TrimSuffix(replacement, "\n")})
	}
	if b.about == "" || len(b.catch) == 0 {
		return nil, fmt.Errorf("bug %s has no # or no catch", name)
	}
	return b, nil
}

// bugNames returns the names of all seeded bugs.
func bugNames() (names []string, err error) {
	files, err := fs.Glob(bugFiles, "bugs/*.bug")
	for _, path := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".bug"))
	}
	return names, err
}

// apply writes the changed files into a directory, and returns for each file of the source the one
// that takes its place. A text that does not stand in its file once is an error.
func (b *seededBug) apply(root, dir string) (replaced map[string]string, err error) {
	changed := map[string]string{}
	for _, e := range b.edits {
		if e.old == "" { // a new file
			changed[e.path] = e.replacement
			continue
		}
		if changed[e.path] == "" {
			text, err := os.ReadFile(filepath.Join(root, e.path))
			if err != nil {
				return nil, err
			}
			changed[e.path] = string(text)
		}
		if n := strings.Count(changed[e.path], e.old); n != 1 {
			return nil, fmt.Errorf("bug %s no longer applies: %s has its text %d times:\n%s",
				b.name, e.path, n, e.old)
		}
		changed[e.path] = strings.Replace(changed[e.path], e.old, e.replacement, 1)
	}
	replaced = map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		name := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(name, []byte(changed[path]), 0o600); err != nil {
			return nil, err
		}
		replaced[filepath.Join(root, path)] = name
	}
	return replaced, nil
}

// build builds the server, with changes unless they are nil, and returns its path.
func build(changes *seededBug, dir string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	binary, err := filepath.Abs(filepath.Join(dir, "millrace"))
	if err != nil {
		return "", err
	}
	args := []string{"build", "-o", binary}
	if changes != nil {
		overlay, err := changes.writeOverlay(root, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "./cmd/millrace")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
}

// writeOverlay writes what go build needs to build the server with the changes.
func (b *seededBug) writeOverlay(root, dir string) (string, error) {
	replaced, err := b.apply(root, dir)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// moduleRoot returns the directory of the module, from anywhere in it.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	path := strings.TrimSpace(string(out))
	if filepath.Base(path) != "go.mod" {
		return "", errors.New("torture builds the server, so it runs within the module")
	}
	return filepath.Dir(path), nil
}
