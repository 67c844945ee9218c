package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// skipUnlessRoot skips a test that mounts a file system where somebody else runs it. Where no test
// may be skipped, it fails at the mount.
func skipUnlessRoot(t *testing.T) {
	t.Helper()
	if (os.Getuid() != 0) && (os.Getenv("MILLRACE_TEST_REQUIRE") != "1") {
		t.Skip("skipped: a file system is mounted by root")
	}
}

// TestPowerCut takes the power of a PostgreSQL server under load, and finds nothing that was
// acknowledged lost.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	skipUnlessRoot(t)
	t.Parallel()
	var output bytes.Buffer
	code := Main(t.Context(), []string{"-seed", "5", "-store", "postgres", "-nodes", "2", "-only",
		faultPowerCut, "-load", "4s", "-dir", t.TempDir(), "-binary",
		serverBinary(t)}, &output)
	for _, text := range []string{"no violation", " × power-cut"} {
		if code != exitGood || !strings.Contains(output.String(), text) {
			t.Errorf("exit code %d, without %q:\n%s", code, text, &output)
		}
	}
}

// TestDamagedPages: a server of torture's own finds a page that was changed on its disk, in a table
// and in an index, and none before that.
func TestDamagedPages(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	requirePrograms(t, "initdb", "postgres", "pg_amcheck")
	t.Parallel()
	dir, err := os.MkdirTemp("", "torture-pages") // the user of the server reads it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := newPgServer(0, t.TempDir(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.log.Close()
	defer func() { _ = s.kill() }()
	if err := s.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.exec(t.Context(), "CREATE TABLE kept AS SELECT id FROM generate_series(1, 100) "+
		"AS id; CREATE INDEX kept_id ON kept (id)"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "kept", "kept_id"} {
		if name != "" {
			damagePage(t, s, name)
		}
		damage, err := s.checkPages("postgres")
		if err != nil || strings.Contains(damage, "invalid page") != (name != "") {
			t.Errorf("with damage in %q: %q, %v", name, damage, err)
		}
	}
}

// damagePage changes a byte of the last page of a table or index while its server is down.
func damagePage(t *testing.T, s *pgServer, name string) {
	t.Helper()
	var path string
	query := "SELECT pg_relation_filepath('" + name + "')"
	if err := errors.Join(s.query(t.Context(), query, &path), s.stop()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(s.data(), path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := errors.Join(os.WriteFile(path, text, 0o600), s.begin(t.Context())); err != nil {
		t.Fatal(err)
	}
}
