package demo

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The checklist finds every kind of wrong result.
func TestChecklist(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	measured := map[string]fileStats{}
	for _, name := range []string{"a", "b"} {
		m, err := measureFile(filepath.Join(dir, name))
		if err != nil || m.Size != 2 || m.Lines != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		measured[name] = m
	}
	result := func(name, run string) fileResult {
		return fileResult{Path: name, Run: run, Worker: 1, Attempt: 1, fileStats: measured[name]}
	}
	wrong := result("b", "2")
	wrong.Lines++
	for name, tt := range map[string]struct {
		results  []fileResult
		leftOver int
		balanced bool
	}{
		"each once": {[]fileResult{result("a", "1"), result("b", "2")}, 0, true},
		"the same result met": {[]fileResult{result("a", "1"), result("b", "2"), result("a", "1")},
			0, true},
		"lost": {[]fileResult{result("a", "1")}, 0, false},
		"duplicate": {[]fileResult{result("a", "1"), result("b", "2"), result("a", "3")},
			0, false},
		"unexpected": {[]fileResult{result("a", "1"), result("b", "2"), result("c", "3")},
			0, false},
		"wrong":           {[]fileResult{result("a", "1"), wrong}, 0, false},
		"left in a queue": {[]fileResult{result("a", "1"), result("b", "2")}, 1, false},
	} {
		files, err := listFiles(dir)
		if err != nil || len(files.order) != 2 {
			t.Fatal(files, err)
		}
		b := newChecklist(files)
		for _, r := range tt.results {
			b.addResult(r, 0)
		}
		b.remaining = tt.leftOver
		b.verify()
		if b.balanced() != tt.balanced {
			t.Errorf("%s: balanced %v: lost %d, duplicates %d, unexpected %d, wrong %v", name,
				b.balanced(), b.lost(), b.duplicates, b.unexpected, b.problems)
		}
	}
}

// A file that changes while the demo runs is no error of anybody's.
func TestChecklistChangedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := listFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := measureFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newChecklist(files)
	b.addResult(fileResult{Path: "a", Run: "1", fileStats: m}, 0)
	if err := os.WriteFile(path, []byte("and after"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b.verify(); !b.balanced() || b.changed != 1 {
		t.Errorf("wrong %v, changed %d", b.problems, b.changed)
	}
}

func TestChecklistKill(t *testing.T) {
	t.Parallel()
	files := &listing{files: map[string]foundFile{}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		files.order = append(files.order, name)
		files.files[name] = foundFile{}
	}
	b := newChecklist(files)
	b.start(2, "a")
	if b.addResult(fileResult{Path: "a", Run: "1", Worker: 2, Attempt: 1}, 0); b.killDue() {
		t.Error("due before its time")
	}
	b.start(2, "a") // its line comes after its result
	b.start(2, "b")
	b.addResult(fileResult{Path: "e", Run: "2", Worker: 2, Attempt: 1}, 0)
	if b.killDue() {
		t.Error("due with nothing in hand")
	}
	b.start(1, "c")
	b.start(1, "d")
	// the lease was lost before
	b.addResult(fileResult{Path: "d", Run: "9", Worker: 2, Attempt: 2}, 0)
	if !b.killDue() {
		t.Fatal("not due")
	}
	b.kill(1, time.Second)
	b.start(1, "f") // said before the kill
	if b.tookOver() || b.killDue() {
		t.Errorf("took over %v, due %v after the kill", b.tookOver(), b.killDue())
	}
	for _, r := range []fileResult{{Path: "b", Run: "3", Worker: 2, Attempt: 1},
		{Path: "c", Run: "4", Worker: 2, Attempt: 2},
		{Path: "f", Run: "6", Worker: 2, Attempt: 2}} {
		b.addResult(r, 3*time.Second)
	}
	if len(b.inProgressAtKill) != 2 || b.takenOver != 2 || b.takenOverAfter != 2*time.Second ||
		b.redelivered != 1 || !b.complete() || !b.tookOver() {
		t.Errorf("claimed %v, back %d after %s, again %d", b.inProgressAtKill, b.takenOver,
			b.takenOverAfter, b.redelivered)
	}
}
