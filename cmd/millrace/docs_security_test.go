package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newClosedReader starts a server with the settings of docs/security.md, but on loopback, for a
// reader in the folder of these settings.
func newClosedReader(t *testing.T, settings string) *reader {
	t.Helper()
	r := &reader{T: t, app: t.TempDir()}
	cert, key := certificateFiles(t)
	for name, file := range map[string]string{"tls.crt": cert, "tls.key": key} {
		if err := os.Rename(file, filepath.Join(r.app, name)); err != nil {
			t.Fatal(err)
		}
	}
	mustWriteFile(t, r.app, "millrace.toml", []byte(settings))
	tokens := []string{"MILLRACE__TOKEN=0123456789abcdef0123", "MILLRACE__OPERATOR__TOKEN=secret"}
	server, err := launch(mustMillrace(t), filepath.Join(r.app, "millrace-data"),
		append(os.Environ(), tokens...), "--config", filepath.Join(r.app, "millrace.toml"),
		"--set", "log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	r.server = server
	r.environ = append(tokens, "URL="+server.url,
		"CURL_CA_BUNDLE="+filepath.Join(r.app, "tls.crt"))
	return r
}

// G-X-01, AD-001: the settings of docs/security.md are refused where anything of them is missing.
// With all of them, what is asked without a token is answered 401 or 404, link-local addresses are
// no callbacks, and the data directory is for its user alone.
func TestSecurityOfTheDocs(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/security.md"]
	blocks := codeBlocks(t, "security.md", "toml")
	if len(blocks) != 1 {
		t.Fatalf("the page has %d blocks of settings, want 1", len(blocks))
	}
	r := newClosedReader(t, blocks[0])
	ran := 0
	for _, section := range sectionsOf(page) {
		if strings.Contains(section, "```sh") {
			r.follow(section)
			ran++
		}
	}
	if ran != 2 {
		t.Errorf("%d sections have commands, want 2", ran)
	}
	r.wantMissing("token", "set token", blocks[0], "MILLRACE__TOKEN")
	r.wantMissing("operator", "set operator.token", blocks[0], "MILLRACE__OPERATOR__TOKEN")
	withoutTLS, _, _ := strings.Cut(blocks[0], "[tls]")
	r.wantMissing("TLS", "set tls.cert and tls.key, or trusted_network = true", withoutTLS, "")
	r.wantPrivate()
}

// wantMissing wants `millrace config` to refuse settings, with a text, in an environment that lacks
// a variable.
func (r *reader) wantMissing(what, text, settings, variable string) {
	r.Helper()
	mustWriteFile(r.T, r.app, "millrace.toml", []byte(settings))
	c := boundedCommand(r.T, mustMillrace(r.T), "config", "--config", "millrace.toml")
	c.Dir = r.app
	c.Env = slices.DeleteFunc(append(os.Environ(), r.environ...), func(entry string) bool {
		return variable != "" && strings.HasPrefix(entry, variable+"=")
	})
	out, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), text) {
		r.Errorf("G-X-01 without %s: %v, without %q: %s", what, c.ProcessState, text, out)
	}
}

// wantPrivate wants the data directory, its secrets and its database to be readable by their user
// alone.
func (r *reader) wantPrivate() {
	r.Helper()
	for name, want := range map[string]os.FileMode{".": 0o700, "pepper": 0o600, "millrace.db": 0o600} {
		info, err := os.Stat(filepath.Join(r.app, "millrace-data", name))
		if err != nil || info.Mode().Perm() != want {
			r.Errorf("AD-002 %s has the mode %v, want %v: %v", name, info.Mode(), want, err)
		}
	}
}
