package deploy

import (
	"archive/tar"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// The commit of the releases in the tests.
const (
	releaseVersion = "1.2.3"
	releaseTime    = "2026-01-02T03:04:05Z"
)

// releaseOf makes a release for some platforms of what is in the work tree, in a repository of its
// own at a path of its own, by the commands of docs/releases.md. It returns the directory of its
// files, whose checksums the commands have checked. The environment of the builder is that of the
// test with what is given; UMASK in it takes rights from the files of its work tree.
func releaseOf(t *testing.T, only string, environ ...string) string {
	t.Helper()
	const begin = "set -e\numask ${UMASK:-022}\n"
	root := t.TempDir()
	mustShell(t, "..", begin+"git ls-files -z --cached --others --exclude-standard --deduplicate | "+
		"xargs -0 ls -d 2>/dev/null | tr '\\n' '\\0' | tar -c --null -T - | "+
		"tar -x --no-same-permissions -C "+root, environ...)
	mustShell(t, root, "git init -q . && git add -A && git -c user.name=n -c user.email=n@localhost "+
		"commit -q -m release", "GIT_AUTHOR_DATE="+releaseTime, "GIT_COMMITTER_DATE="+releaseTime)
	commands := releaseBlock(t, "git tag v"+releaseVersion)
	text, err := shellWithin(t.Context(), buildTimeout, root, begin+strings.Replace(commands,
		"make release ", "make release RELEASE='-only "+only+" -tools "+testPrograms(t)+"' ", 1),
		environ...)
	if err != nil || !strings.Contains(text, "millrace.rb: OK\n") {
		t.Fatalf("a release for %s: %v\n%s", only, err, text)
	}
	return filepath.Join(root, "dist")
}

// otherBuilder is the environment of a builder who shares nothing with the one of the test but the
// compiler and the sources of modules, whose checksums are in go.sum.
func otherBuilder(t *testing.T) []string {
	t.Helper()
	modules := strings.TrimSpace(mustShell(t, ".", "go env GOMODCACHE"))
	return []string{"GOMODCACHE=" + modules, "GOCACHE=" + t.TempDir(), "HOME=" + t.TempDir(),
		"TZ=NZST-12", "LC_ALL=C", "UMASK=077"}
}

// releaseBlock returns the block of docs/releases.md that begins with a command.
func releaseBlock(t *testing.T, command string) string {
	t.Helper()
	_, block, found := strings.Cut(mustRead(t, "../docs/releases.md"), "\n```sh\n"+command)
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed {
		t.Fatalf("docs/releases.md has no block that begins with %q", command)
	}
	return command + block
}

// releaseCommand returns the only command of docs/releases.md that begins with a text.
func releaseCommand(t *testing.T, prefix string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+prefix+` .*$`).FindAllString(
		mustRead(t, "../docs/releases.md"), -1)
	if len(found) != 1 {
		t.Fatalf("docs/releases.md has %q", found)
	}
	return found[0]
}

// names returns the names of the files of a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, f.Name())
	}
	return all
}

// TestRelease: two releases of one commit are the same, and each file is what it should be. They
// are for this machine, and of one builder. With MILLRACE_TEST_RELEASES=builder the second is of
// another builder, who has compiled nothing yet, with =systems they are for the other systems too,
// and with =all both: each takes minutes.
func TestRelease(t *testing.T) {
	for _, name := range []string{"apt-get", "dpkg-deb", "node", "npm", "python3", "systemctl"} {
		program(t, name)
	}
	releases := os.Getenv("MILLRACE_TEST_RELEASES")
	only, others := "linux/amd64", releases == "systems" || releases == "all"
	if others {
		only += ",darwin/amd64,darwin/arm64,linux/arm64,windows/amd64"
	}
	var builder []string
	if releases == "builder" || releases == "all" {
		builder = otherBuilder(t)
	}
	out, again := releaseOf(t, only), releaseOf(t, only, builder...)
	const base = "millrace_" + releaseVersion + "_linux_amd64"
	const wheel = "millrace-" + releaseVersion + "-py3-none-any.whl"
	const npmPackage = "millrace-" + releaseVersion + ".tgz"
	want := []string{"checksums.txt", wheel, npmPackage, "millrace.rb", base + ".cdx.json",
		base + ".deb", base + ".tar.gz"}
	if others {
		want = append(want, otherFiles()...)
	}
	slices.Sort(want)
	if got := names(t, out); !slices.Equal(got, want) {
		t.Fatalf("the files are %v, want %v", got, want)
	}
	for _, name := range want {
		if mustRead(t, filepath.Join(out, name)) != mustRead(t, filepath.Join(again, name)) {
			t.Errorf("%s is another one in a second build", name)
		}
	}
	if sums := mustRead(t, filepath.Join(out, "checksums.txt")); strings.Count(sums, "\n") != len(want)-1 {
		t.Errorf("the checksums are %s", sums)
	}
	dir := checkArchive(t, filepath.Join(out, base+".tar.gz"), base)
	binary := filepath.Join(dir, base, "millrace")
	checkVersion(t, binary)
	checkDebian(t, filepath.Join(out, base+".deb"), binary)
	checkSBOM(t, filepath.Join(out, base+".cdx.json"), binary)
	checkFormula(t, out, "linux", "intel", base+".tar.gz")
	checkPython(t, filepath.Join(out, wheel))
	checkTypeScript(t, filepath.Join(out, npmPackage))
	checkStart(t, out)
	checkReadme(t, filepath.Join(dir, base))
	if others {
		checkSystems(t, out)
	}
}

// checkVersion checks what the binary says of itself.
func checkVersion(t *testing.T, binary string) {
	t.Helper()
	var v struct{ Version, Revision, Time, Go, Platform string }
	text := mustShell(t, ".", binary+" version --json")
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != "v"+releaseVersion || len(v.Revision) != 40 || v.Time != releaseTime ||
		!strings.HasPrefix(v.Go, "go1.") || v.Platform != "linux/amd64" {
		t.Errorf("got %s", text)
	}
	plain := mustShell(t, ".", binary+" version")
	for _, word := range []string{"v" + releaseVersion, v.Revision, releaseTime, v.Go} {
		if !strings.Contains(plain, word) {
			t.Errorf("millrace version does not tell %s: %s", word, plain)
		}
	}
}

// checkArchive checks an archive and unpacks it into a directory.
func checkArchive(t *testing.T, path, base string) (dir string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := strings.TrimPrefix(h.Name, base+"/"); !isClient(name) {
			all = append(all, name)
		}
		if h.Uid != 0 || h.Uname != "root" || h.ModTime.UTC().Format("2006-01-02T15:04:05Z") !=
			releaseTime || h.Mode != map[bool]int64{true: 0o755, false: 0o644}[h.Name == base+"/millrace"] {
			t.Errorf("%s is %+v", h.Name, h)
		}
	}
	want := []string{"CHANGELOG.md", "LICENSE", "README.md", "clients/go/client/client.go",
		"clients/go/go.mod", "clients/python/millrace/client.py", "clients/typescript.tgz", "completions/_millrace", "completions/millrace.bash",
		"completions/millrace.fish", "millrace"}
	if !slices.Equal(all, want) || !z.ModTime.IsZero() {
		t.Errorf("the archive has %v, want %v", all, want)
	}
	dir = t.TempDir()
	mustShell(t, dir, "tar -xf "+path)
	readme := mustRead(t, filepath.Join(dir, base, "README.md"))
	system := strings.Replace(strings.TrimPrefix(base, "millrace_"+releaseVersion+"_"), "_", "/", 1)
	if !strings.HasPrefix(readme, "# Millrace v"+releaseVersion+" for "+system+"\n") ||
		!strings.Contains(readme, "    ./millrace serve\n") {
		t.Errorf("the README of the archive is\n%s", readme)
	}
	mustShell(t, dir, "bash -n "+base+"/completions/millrace.bash && grep -q compdef "+base+
		"/completions/_millrace")
	return dir
}

// isClient reports whether a file of an archive is one of the client for Python or Go, of which the
// tests name one: checkStart uses them.
func isClient(name string) bool {
	ofPython := strings.HasPrefix(name, "clients/python/") && !strings.HasSuffix(name, "/client.py")
	ofGo := strings.HasPrefix(name, "clients/go/client/") && !strings.HasSuffix(name, "/client.go")
	return ofPython || ofGo
}

// checkDebian installs a package into a directory and runs a server of it.
func checkDebian(t *testing.T, path, binary string) {
	t.Helper()
	root := t.TempDir()
	mustShell(t, root, "dpkg-deb -x "+path+" .")
	for name, text := range map[string]string{"Package": "millrace", "Version": releaseVersion,
		"Architecture": "amd64"} {
		if got := strings.TrimSpace(mustShell(t, root, "dpkg-deb -f "+path+" "+name)); got != text {
			t.Errorf("%s is %q, want %q", name, got, text)
		}
	}
	if got := mustShell(t, root, "dpkg-deb --ctrl-tarfile "+path+" | tar -xO ./conffiles"); got !=
		"/etc/millrace/millrace.toml\n" {
		t.Errorf("the settings files are %q", got)
	}
	if mustRead(t, filepath.Join(root, "usr/bin/millrace")) != mustRead(t, binary) {
		t.Error("the binary is another one than that of the archive")
	}
	unit := mustRead(t, filepath.Join(root, "usr/lib/systemd/system/millrace.service"))
	if !strings.Contains(unit, "ExecStart=/usr/bin/millrace serve --config /etc/millrace/millrace.toml\n") {
		t.Errorf("the unit is %s", unit)
	}
	owners := mustShell(t, root, "dpkg-deb -c "+path+" | awk '{print $2}' | sort -u")
	if owners != "root/root\n" {
		t.Errorf("the owners are %s", owners)
	}
	for _, place := range []string{"share/bash-completion/completions/millrace",
		"share/zsh/vendor-completions/_millrace", "share/fish/vendor_completions.d/millrace.fish",
		"share/doc/millrace/copyright"} {
		if mustRead(t, filepath.Join(root, "usr", place)) == "" {
			t.Errorf("%s is empty", place)
		}
	}
	mustShell(t, root, "usr/bin/millrace config --config etc/millrace/millrace.toml >/dev/null")
	startProgram(t, filepath.Join(root, "usr/bin/millrace"))
	install := strings.Replace(releaseBlock(t, "apt install"), "apt install",
		"apt-get install --simulate", 1)
	out := mustShell(t, filepath.Dir(path), "set -e\n"+belowRoot(install, root))
	if !strings.Contains(out, "\nInst millrace ("+releaseVersion+" ") {
		t.Errorf("apt would install %s", out)
	}
	checkEnabled(t, root)
}

// checkSBOM compares the components with the modules that Go says the binary has.
func checkSBOM(t *testing.T, path, binary string) {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	type component struct{ Version, Purl string }
	var bom struct {
		BomFormat, SpecVersion string
		Metadata               struct {
			Timestamp string
			Component component
		}
		Components []component
	}
	if err := json.Unmarshal([]byte(mustRead(t, path)), &bom); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range bom.Components {
		got = append(got, c.Purl)
	}
	if len(want) < 50 || !slices.Equal(got, want) || bom.BomFormat != "CycloneDX" ||
		bom.Metadata.Timestamp != releaseTime || bom.Metadata.Component.Version != "v"+releaseVersion {
		t.Errorf("the SBOM has %d components, want %d: %+v", len(got), len(want), bom.Metadata)
	}
}

// checkFormula checks that the formula names one archive for a processor of a system, as Homebrew
// calls them, with its checksum.
func checkFormula(t *testing.T, out, system, processor, archive string) {
	t.Helper()
	text := mustRead(t, filepath.Join(out, "millrace.rb"))
	_, part, _ := strings.Cut(text, "\n  on_"+system+" do\n")
	part, _, _ = strings.Cut(part, "\n  end\n")
	found := regexp.MustCompile(`on_`+processor+` do\s+url "https://[^"]*/v`+releaseVersion+
		`/([^"]*)"\s+sha256 "(\w+)"`).FindAllStringSubmatch(part, -1)
	if len(found) != 1 || found[0][1] != archive ||
		!strings.Contains(mustRead(t, filepath.Join(out, "checksums.txt")), found[0][2]+"  "+archive) {
		t.Errorf("the formula is %s", text)
	}
	if opened, closed := len(regexp.MustCompile(`(?m) do$|^ *def |^class `).FindAllString(text, -1)),
		len(regexp.MustCompile(`(?m)^ *end$`).FindAllString(text, -1)); opened != closed {
		t.Errorf("the formula opens %d blocks and closes %d: %s", opened, closed, text)
	}
}

// userAgents starts a server that answers everything with success, and returns its URL and what
// tells the User-Agent of the last request.
func userAgents(t *testing.T) (url string, agent func() string) {
	t.Helper()
	var last atomic.Pointer[string]
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name := r.UserAgent()
		last.Store(&name)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string {
		if name := last.Load(); name != nil {
			return *name
		}
		return "nothing"
	}
}

// checkPython installs the client without a registry, and compares the wheel with the one that pip
// would build of the folder.
func checkPython(t *testing.T, wheel string) {
	t.Helper()
	dir := t.TempDir()
	mustShell(t, dir, "ln -s "+wheel+" . && python3 -m venv venv && . venv/bin/activate && "+
		releaseCommand(t, "pip install")+" && pip check", "PIP_NO_INDEX=1",
		"PIP_DISABLE_PIP_VERSION_CHECK=1")
	url, agent := userAgents(t)
	got := mustShell(t, dir, `venv/bin/python -I -W error -c 'import millrace, importlib.metadata as m
millrace.Client("`+url+`").relay().delete("q", "1")
print(millrace.__version__, m.version("millrace"))'`)
	if got != releaseVersion+" "+releaseVersion+"\n" || agent() != "millrace-python/"+releaseVersion {
		t.Errorf("the client for Python says %q and sends %q", got, agent())
	}
	const record = "/millrace-" + releaseVersion + ".dist-info/RECORD"
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "clients/python")
	mustShell(t, dir, "mkdir source built && cp -r "+source+"/millrace "+source+"/*.* source && "+
		"sed -i 's/0\\.0\\.0\\.dev0/"+releaseVersion+"/' source/millrace/version.py && "+
		"sed -Ei 's#\\]\\(\\.\\./\\.\\./(docs/)?([A-Za-z-]+)\\.md#](http://127.0.0.1:8080/docs/\\2#g; "+
		"s#/docs/README#/docs#' source/README.md && "+
		"python3 -c 'import sys; sys.path.insert(0, \"source\"); import build_wheel; "+
		"build_wheel.build_wheel(\"built\")' && python3 -m zipfile -e built/*.whl folder && "+
		"python3 -m zipfile -e "+wheel+" release && cmp "+root+"/LICENSE release/*/LICENSE && "+
		"rm release/*/LICENSE && for one in folder release; do grep -v LICENSE $one"+record+
		" | sort >$one.record && rm $one"+record+"; done && diff folder.record release.record && "+
		"diff -r folder release")
}

// checkTypeScript installs the client without a registry, runs it, and compiles a program with its
// types. The package has the files that npm would pack.
func checkTypeScript(t *testing.T, path string) {
	t.Helper()
	dir := t.TempDir()
	cache := "npm_config_cache=" + t.TempDir()
	mustShell(t, dir, "ln -s "+path+" . && "+releaseCommand(t, "npm install"), cache,
		"npm_config_offline=true", "npm_config_audit=false", "npm_config_fund=false")
	var manifest struct {
		Name, Version   string
		DevDependencies struct{ TypeScript string }
	}
	text := mustRead(t, filepath.Join(dir, "node_modules/millrace/package.json"))
	if err := json.Unmarshal([]byte(text), &manifest); err != nil || manifest.Name != "millrace" ||
		manifest.Version != releaseVersion {
		t.Errorf("the package is %+v: %v", manifest, err)
	}
	url, agent := userAgents(t)
	program := `import { Client, type RelaySpec } from "millrace";
const spec: RelaySpec = { queue: "q", id: "1", timeout: 30, payload: {} };
await new Client({ baseURL: "` + url + `" }).relay().delete(spec.queue, spec.id);
// @ts-expect-error: the types are those of the client, and not any.
export const wrong: RelaySpec = { queue: 1 };
`
	if err := os.WriteFile(filepath.Join(dir, "program.mts"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(testPrograms(t), "typescript-"+manifest.DevDependencies.TypeScript,
		"node_modules/typescript/bin/tsc")
	got := mustShell(t, dir, "node "+tsc+" --module nodenext --target es2022 --lib "+
		"es2024,esnext,dom,dom.asynciterable --strict program.mts && node program.mjs")
	if got != "" || agent() != "millrace-typescript/"+releaseVersion {
		t.Errorf("the client for TypeScript says %q and sends %q", got, agent())
	}
	source, err := filepath.Abs("../clients/typescript")
	if err != nil {
		t.Fatal(err)
	}
	mustShell(t, dir, "tar -xf "+path+" && cd package && cp -r "+source+"/src "+source+"/test "+
		source+"/*.md . && npm pack --offline --silent --pack-destination .. && cd .. && "+
		"tar -tf "+filepath.Base(path)+" | sort >npm.list && tar -tf "+path+" | sort >release.list && "+
		"diff npm.list release.list && grep -qx package/LICENSE npm.list && "+
		"for one in package/src/*.ts; do n=package/dist/$(basename $one .ts); "+
		"ls $n.js $n.js.map $n.d.ts $n.d.ts.map || exit; done && "+
		`grep -q '"sources":\["../src/index.ts"\]' package/dist/index.js.map`, cache)
}

// TestReleaseRefuses: what is not committed would be in no second build, and a directory with files
// would have their checksums.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mustShell(t, root, "git init -q . && git -c user.name=n -c user.email=n@localhost commit -q "+
		"--allow-empty -m empty && touch file")
	out, err := shell(t.Context(), ".", "go run ./release -out "+t.TempDir()+" -root "+root)
	if err == nil || !strings.Contains(out, "changes that are not committed:\n?? file") {
		t.Errorf("a work tree with changes: %v: %s", err, out)
	}
	mustShell(t, root, "git add file && git -c user.name=n -c user.email=n@localhost commit -q -m file")
	out, err = shell(t.Context(), ".", "go run ./release -out "+root+" -root "+root)
	if err == nil || !strings.Contains(out, "is not empty") {
		t.Errorf("a directory with files: %v: %s", err, out)
	}
}
