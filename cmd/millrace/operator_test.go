package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestRotationOnTwoNodes: AD-002, G-AD-02: two nodes of one PostgreSQL have one token, and a
// rotation through one of them is in force on the other and in its file.
func TestRotationOnTwoNodes(t *testing.T) {
	t.Parallel()
	dir, store := t.TempDir(), "store="+pgtest.URL(t)
	pepper := filepath.Join(dir, "pepper")
	mustWriteFile(t, dir, "pepper", []byte(strings.Repeat("p", 32)))
	if err := os.Chmod(pepper, 0o600); err != nil {
		t.Fatal(err)
	}
	var urls, files []string
	for _, name := range []string{"one", "two"} {
		s := launchIn(t, filepath.Join(dir, name), "--set", "log.level=warn", "--set", store,
			"--set", "secrets.pepper_file="+pepper, "--set", "contracts=relay")
		urls = append(urls, s.url)
		files = append(files, filepath.Join(dir, name, "operator.token"))
	}
	read := func(i int) string {
		text, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	former := read(0)
	if former == "" || former != read(1) {
		t.Fatalf("the tokens are %q and %q", former, read(1))
	}
	status := func(url, token string) int {
		status, _ := sendTo(t, http.DefaultClient, http.MethodGet, url+"/admin/v1/health", "",
			"Authorization", "Bearer "+token)
		return status
	}
	code, out, errs := runCommand(t, []string{"MILLRACE_SERVER=" + urls[0]}, "operator", "token",
		"--rotate", "--set", "data_dir="+filepath.Join(dir, "one"), "--set",
		"secrets.pepper_file="+pepper)
	made := strings.TrimSpace(out)
	if code != cli.ExitOK || made == former || status(urls[0], made) != 200 {
		t.Fatalf("exit code %d, %q after %q: %s", code, out, former, errs)
	}
	pollUntil(t.Fatalf, "the rotation on the other node", func() bool {
		return status(urls[1], made) == 200 && status(urls[1], former) == 401 && read(1) == made
	})
}
