package deploy

import (
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Machines that a release is for and that are not this one.
const (
	onMac      = "darwin_arm64"
	onIntelMac = "darwin_amd64"
	onLinux    = "linux_arm64"
	onWindows  = "windows_amd64"
)

// otherName is the beginning of the names of the files for a machine.
func otherName(system string) string { return "millrace_" + releaseVersion + "_" + system }

// otherFiles are the files of a release for these machines.
func otherFiles() []string {
	return []string{otherName(onMac) + ".tar.gz", otherName(onMac) + ".cdx.json",
		otherName(onIntelMac) + ".tar.gz", otherName(onIntelMac) + ".cdx.json",
		otherName(onLinux) + ".tar.gz", otherName(onLinux) + ".cdx.json", otherName(onLinux) + ".deb",
		otherName(onWindows) + ".zip", otherName(onWindows) + ".cdx.json"}
}

// checkSystems checks the files of a release for machines that are not this one, which cannot be
// run: the binaries are of these machines, and archives and packages have all that belongs to them.
func checkSystems(t *testing.T, out string) {
	t.Helper()
	binaries := map[string]string{}
	for _, system := range []string{onMac, onIntelMac, onLinux} {
		name := otherName(system)
		dir := checkArchive(t, filepath.Join(out, name+".tar.gz"), name)
		binaries[system] = mustRead(t, filepath.Join(dir, name, "millrace"))
	}
	binaries[onWindows] = zipFiles(t, filepath.Join(out, otherName(onWindows)+".zip"),
		otherName(onWindows))["millrace.exe"]
	for system, processor := range map[string]macho.Cpu{onMac: macho.CpuArm64,
		onIntelMac: macho.CpuAmd64} {
		forMac, err := macho.NewFile(strings.NewReader(binaries[system]))
		if err != nil || forMac.Cpu != processor {
			t.Errorf("the binary for %s: %v", system, err)
		}
	}
	forLinux, err := elf.NewFile(strings.NewReader(binaries[onLinux]))
	if err != nil || forLinux.Machine != elf.EM_AARCH64 {
		t.Errorf("the binary for Linux: %v", err)
	}
	forWindows, err := pe.NewFile(strings.NewReader(binaries[onWindows]))
	if err != nil || forWindows.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
		t.Errorf("the binary for Windows: %v", err)
	}
	for system, text := range binaries {
		info, err := buildinfo.Read(strings.NewReader(text))
		if err != nil || info.Main.Version != "v"+releaseVersion {
			t.Errorf("%s is %+v: %v", system, info, err)
		}
		if bom := mustRead(t, filepath.Join(out, otherName(system)+".cdx.json")); !strings.Contains(bom,
			`"CycloneDX"`) {
			t.Errorf("the SBOM of %s is %.300s", system, bom)
		}
	}

	root := t.TempDir()
	deb := filepath.Join(out, otherName(onLinux)+".deb")
	mustShell(t, root, "dpkg-deb -x "+deb+" .")
	if got := strings.TrimSpace(mustShell(t, root, "dpkg-deb -f "+deb+" Architecture")); got != "arm64" {
		t.Errorf("the package is for %s", got)
	}
	if mustRead(t, filepath.Join(root, "usr/bin/millrace")) != binaries[onLinux] {
		t.Error("the binary of the package is another one than that of the archive")
	}
	checkFormula(t, out, "macos", "arm", otherName(onMac)+".tar.gz")
	checkFormula(t, out, "macos", "intel", otherName(onIntelMac)+".tar.gz")
	checkFormula(t, out, "linux", "arm", otherName(onLinux)+".tar.gz")
}

// zipFiles checks the archive for Windows and returns its files.
func zipFiles(t *testing.T, path, base string) map[string]string {
	t.Helper()
	text := mustRead(t, path)
	z, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	all, files := []string(nil), map[string]string{}
	for _, f := range z.File {
		opened, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		if _, err := io.Copy(&content, opened); err != nil {
			t.Fatal(err)
		}
		short := strings.TrimPrefix(f.Name, base+"/")
		if files[short] = content.String(); !isClient(short) {
			all = append(all, short)
		}
		if f.Modified.UTC().Format("2006-01-02T15:04:05Z") != releaseTime {
			t.Errorf("%s is of %s", f.Name, f.Modified)
		}
	}
	want := []string{"CHANGELOG.md", "LICENSE", "README.md", "clients/go/client/client.go",
		"clients/go/go.mod", "clients/python/millrace/client.py", "clients/typescript.tgz", "completions/millrace.ps1", "millrace.exe"}
	if !slices.Equal(all, want) {
		t.Errorf("the archive has %v, want %v", all, want)
	}
	if !strings.Contains(files["completions/millrace.ps1"], "Register-ArgumentCompleter") {
		t.Errorf("the completion is %s", files["completions/millrace.ps1"])
	}
	return files
}
