package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shopTest is a test of the handler of a reader's own, inside its package. ENTRY is its line in the
// registry.
const shopTest = `package handler

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestShopOfTheDocs(t *testing.T) {
	entry := map[string]Entry{ENTRY}["shop"]
	options := map[string]any{}
	for _, name := range entry.Options {
		options[name] = filepath.Join(t.TempDir(), "ended")
	}
	h, err := entry.New(options)
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Prepare(context.Background(), Job{}, Manifest{Resources: []Resource{
		{ID: "a", Tags: map[string]string{"kind": "thumbnail"}}, {ID: "b"}}})
	if err != nil || len(m.Resources) != 1 || m.Resources[0].ID != "b" {
		t.Errorf("got %+v, %v", m, err)
	}
	err = h.Finalize(context.Background(), Summary{Job: Job{ID: "7"}, Status: "completed"})
	text, _ := os.ReadFile(options["tell_file"].(string))
	if err != nil || string(text) != "7 completed" {
		t.Errorf("got %q, %v", text, err)
	}
}
`

// TestGoHandlersOfTheDocs: the worked example of docs/handlers.md is the code of the gallery, and
// the handler of a reader's own compiles where the page puts it, and does what the page says.
func TestGoHandlersOfTheDocs(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs("../../internal/contract/fetchbox/handler")
	if err != nil {
		t.Fatal(err)
	}
	blocks := codeBlocks(t, "handlers.md", "go")
	if len(blocks) != 4 {
		t.Fatalf("the page has %d blocks of Go, want 4", len(blocks))
	}
	comment := regexp.MustCompile(`(?m)[ \t]*//.*$`)
	gap := regexp.MustCompile(` +`)
	source := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return comment.ReplaceAllString(string(text), "")
	}
	for _, block := range blocks[:3] {
		want := gap.ReplaceAllString(comment.ReplaceAllString(block, ""), " ")
		if line := missingLine(want, source("gallery.go")); line != "" {
			t.Errorf("gallery.go does not have %q after the lines before it", line)
		}
	}
	page := documents(t)["docs/handlers.md"]
	line := regexp.MustCompile("`(gallery := Entry.*)`").FindStringSubmatch(page)
	if line == nil || !strings.Contains(source("registry.go"), line[1]) {
		t.Errorf("registry.go does not have the line %q", line)
	}
	entry := regexp.MustCompile(`(?m)^// in Registry: (.*)$`).FindStringSubmatch(blocks[3])
	if entry == nil {
		t.Fatal("the page does not register the handler")
	}
	dir := t.TempDir()
	const header = "package handler\n\nimport (\n\t\"context\"\n\t\"os\"\n\t\"slices\"\n)\n\n"
	mustWriteFile(t, dir, "shop.go", []byte(header+blocks[3]))
	mustWriteFile(t, dir, "shop_test.go", []byte(strings.Replace(shopTest, "ENTRY", entry[1], 1)))
	places := map[string]string{}
	for _, name := range []string{"shop.go", "shop_test.go"} {
		places[filepath.Join(folder, name)] = filepath.Join(dir, name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": places})
	if err != nil {
		t.Fatal(err)
	}
	mustWriteFile(t, dir, "overlay.json", overlay)
	// Its packages may have to be built first, as the tests around it are another build, with the
	// race detector. Only the limit of a test ends it.
	c := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-vet=off",
		"-run", "^TestShopOfTheDocs$", "-overlay", filepath.Join(dir, "overlay.json"), ".")
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "--- PASS: TestShopOfTheDocs") {
		t.Errorf("%v: %s", err, out)
	}
}
