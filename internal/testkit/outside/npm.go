package outside

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// npmPackage is a package that npm installs, at a fixed version.
type npmPackage struct{ name, version string }

// The packages of npm that tests use.
var (
	// fauxqsPackage is at the latest version that runs on the Node.js of Debian.
	fauxqsPackage = npmPackage{"fauxqs", "1.9.2"}
	// axePackage looks for what keeps people from using a page (CO-007).
	axePackage = npmPackage{"axe-core", "4.14.1"}
	// typescriptPackage checks the types of the console's script.
	typescriptPackage = npmPackage{"typescript", "5.9.3"}
)

// file returns a file of the package and installs the package if necessary. Its version is part of
// the path. Without MILLRACE_TEST_REQUIRE a test is skipped instead.
func (p npmPackage) file(tb testing.TB, path ...string) string {
	tb.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	dir := filepath.Join(programDir(tb), p.name+"-"+p.version)
	file := filepath.Join(dir, "node_modules", p.name, filepath.Join(path...))
	if exists(file) {
		return file
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		tb.Skipf("skipped: there is no %s", file)
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--prefix", dir,
		p.name+"@"+p.version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if text, err := install.CombinedOutput(); err != nil {
		tb.Fatalf("npm install %s@%s: %v\n%s", p.name, p.version, err, text)
	}
	return file
}

// Axe returns the text of axe-core, a script that finds what keeps people from using a page.
func Axe(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(axePackage.file(tb, "axe.min.js"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// CheckTypes fails the test unless the types of a script of JavaScript are right, as its comments
// have them.
func CheckTypes(tb testing.TB, script string) {
	tb.Helper()
	check := exec.Command("node", typescriptPackage.file(tb, "bin", "tsc"), "--checkJs", "--noEmit",
		"--strict", "--noUnusedLocals", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", script)
	if text, err := check.CombinedOutput(); err != nil {
		tb.Errorf("tsc: %v\n%s", err, text)
	}
}

// InstallClient compiles the client for TypeScript, a folder of the repository, into the
// node_modules of a folder, as npm would install it.
func InstallClient(tb testing.TB, client, folder string) {
	tb.Helper()
	to := filepath.Join(folder, "node_modules", "millrace")
	build := exec.Command("node", typescriptPackage.file(tb, "bin", "tsc"), "-p", client, "--outDir",
		filepath.Join(to, "dist"))
	if text, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("tsc: %v\n%s", err, text)
	}
	text, err := os.ReadFile(filepath.Join(client, "package.json"))
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "package.json"), text, 0o644); err != nil {
		tb.Fatal(err)
	}
}
