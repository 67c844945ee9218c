package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// runCommand runs a command in a directory of its own and returns how it ended and what it wrote.
func runCommand(t *testing.T, environ []string, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, mustMillrace(t), args...)
	var stdout, stderr bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = t.TempDir(), &stdout, &stderr
	c.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
	_ = c.Run()
	return c.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// mustWriteFile writes a file into a folder.
func mustWriteFile(t *testing.T, folder, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// certificateFiles writes a certificate for 127.0.0.1 that no system trusts, and its key.
func certificateFiles(t *testing.T) (cert, key string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	secret, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mustWriteFile(t, dir, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}))
	mustWriteFile(t, dir, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
		Bytes: secret}))
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// A server whose certificate is not trusted is not reached, whatever the command; --cacert trusts
// it.
func TestCACert(t *testing.T) {
	t.Parallel()
	cert, key := certificateFiles(t)
	s := launchNode(t, "data", "--set", "tls.cert="+cert, "--set", "tls.key="+key)
	dir := t.TempDir()
	mustWriteFile(t, dir, "line", []byte("1\n"))
	mustWriteFile(t, dir, "picture.png", []byte("\x89PNG\r\n\x1a\n"))
	mustWriteFile(t, dir, "graph.json", []byte(`{"jobs":[{"ref":"a","queue":"q"}]}`))
	commands := [][]string{
		{"enqueue", "--queue", "q", "--timeout", "9s", filepath.Join(dir, "line")},
		{"work", "q", "--until-empty", "--", "true"},
		{"graph", "submit", filepath.Join(dir, "graph.json")},
		{"fetch", "--url", "http://127.0.0.1:1/x"},
		{"images", "put", "--wait=false", filepath.Join(dir, "picture.png")},
		{"export"},
		{"bench", "--jobs", "2"},
		{"simulate", "--duration", "100ms"},
	}
	for i, args := range commands {
		code, _, errs := runCommand(t, []string{"MILLRACE_SERVER=" + s.url}, args...)
		if code != cli.ExitServer {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
		if i >= 6 { // they take their time with a server that they reach
			continue
		}
		code, _, errs = runCommand(t, []string{"MILLRACE_SERVER=" + s.url},
			append([]string{args[0], "--cacert", cert}, args[1:]...)...)
		if args[0] == "graph" || args[0] == "images" { // the flag belongs to the subcommand
			code, _, errs = runCommand(t,
				[]string{"MILLRACE_SERVER=" + s.url, "MILLRACE_CACERT=" + cert}, args...)
		}
		if want := map[bool]int{true: cli.ExitFailed}[args[0] == "fetch"]; code != want {
			t.Errorf("%s, trusted: exit code %d, want %d: %s", args, code, want, errs)
		}
	}
	operated := launchNode(t, "operated", "--set", "tls.cert="+cert, "--set", "tls.key="+key,
		"--set", "operator.token=t")
	for want, trust := range map[int]string{cli.ExitServer: "", cli.ExitOK: cert} {
		code, _, errs := runCommand(t, []string{"MILLRACE_SERVER=" + operated.url,
			"MILLRACE_OPERATOR_TOKEN=t"}, "queues", "list", "--cacert", trust)
		if code != want {
			t.Errorf("queues list, trusting %q: exit code %d, want %d: %s", trust, code, want, errs)
		}
	}
	code, _, errs := runCommand(t, nil, "enqueue", "--server",
		strings.Replace(s.url, "https", "http", 1), "--queue", "q", "--timeout", "9s",
		filepath.Join(dir, "line"))
	if code != cli.ExitServer || !strings.Contains(errs, "https://") {
		t.Errorf("without TLS: exit code %d: %s", code, errs)
	}
	for _, wrong := range []string{key, filepath.Join(dir, "none")} {
		if code, _, errs = runCommand(t, nil, "export", "--server", s.url, "--cacert",
			wrong); code != cli.ExitUsage || !strings.Contains(errs, "--cacert") {
			t.Errorf("--cacert %s: exit code %d: %s", wrong, code, errs)
		}
	}
}

// A server is named with or without a scheme, by flag or environment, also for export, which else
// reads the store.
func TestServerIsNamed(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data")
	host := strings.TrimPrefix(s.url, "http://")
	dir := t.TempDir()
	mustWriteFile(t, dir, "line", []byte("1\n"))
	for _, name := range []string{host, strings.Replace(host, "127.0.0.1", "localhost", 1), s.url,
		s.url + "/"} {
		for _, args := range [][]string{{"enqueue", "--queue", "q", "--timeout", "9s",
			filepath.Join(dir, "line")}, {"export"}} {
			if code, _, errs := runCommand(t, nil,
				append(args, "--server", name)...); code != cli.ExitOK {
				t.Errorf("--server %s %s: exit code %d: %s", name, args, code, errs)
			}
			if code, _, errs := runCommand(t, []string{"MILLRACE_SERVER=" + name},
				args...); code != cli.ExitOK {
				t.Errorf("MILLRACE_SERVER=%s %s: exit code %d: %s", name, args, code, errs)
			}
		}
	}
	unreachable := []string{"MILLRACE_SERVER=127.0.0.1:1"}
	if code, _, errs := runCommand(t, unreachable, "export"); code != cli.ExitServer {
		t.Errorf("the server is unavailable: exit code %d: %s", code, errs)
	}
	if code, _, errs := runCommand(t, unreachable, "export", "--set",
		"data_dir=none"); code != cli.ExitUnable || !strings.Contains(errs, "none") {
		t.Errorf("the store is named: exit code %d: %s", code, errs)
	}
	if code, _, _ := runCommand(t, nil, "export", "--server", "nowhere"); code != cli.ExitUsage {
		t.Errorf("no address: exit code %d", code)
	}
}
