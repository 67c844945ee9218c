package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestDamagedDatabase: a run that cannot go on has a verdict where a violation was found, as a node
// refuses its database or what was acknowledged is not there. Any other error is none.
func TestDamagedDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	t.Parallel()
	p, _, err := readPlan([]string{"-seed", "9", "-dir", t.TempDir(), "-binary", serverBinary(t)},
		io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNode(0, &p, "sqlite", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.log.Close()
	data := filepath.Join(p.Dir, "node0")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(p.Dir, "pepper"),
		make([]byte, 64), 0o600), os.WriteFile(filepath.Join(data, "millrace.db"),
		make([]byte, 8192), 0o600), n.start()); err != nil {
		t.Fatal(err)
	}
	defer n.kill()
	err = n.becomeReady(t.Context())
	if !errors.Is(err, errDamaged) {
		t.Fatalf("a node with a damaged database: %v\n%s", err, n.lastLog())
	}
	r := &run{plan: &p, nodes: []*node{n}, output: io.Discard}
	if v, other := r.endEarly(errors.New("no disk")); (v != nil) || (other == nil) {
		t.Errorf("an error alone has the verdict %v", v)
	}
	v, err := r.endEarly(err)
	if (err != nil) || (v.Violations["database"] != 1) || (len(v.Examples) != 1) {
		t.Errorf("the verdict is %+v (%v)", v, err)
	}
	if v, err := r.endEarly(errors.New("status 404")); (err != nil) || (v.Violations["database"] != 1) {
		t.Errorf("after a violation an error leaves %+v (%v)", v, err)
	}
}
