package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The clients of other languages are packages that pip and npm install from a file. In the
// repository they have a development version, which the release replaces by its own. The archives
// have them too, so that who has one needs nothing else for a first program: the folder of the
// client for Python, which works as it stands, the package of the one for TypeScript, and a module
// with the client for Go alone.

// committed returns the committed files below a folder of the repository, with their names relative
// to it. Other files that lie there do not belong to the release.
func (r *release) committed(dir string) ([]file, error) {
	list, err := r.output("git", "ls-files", "-z", dir)
	if err != nil {
		return nil, err
	}
	var all []file
	for _, name := range strings.Split(strings.Trim(list, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		all = append(all, file{strings.TrimPrefix(name, dir+"/"), 0o644, text})
	}
	return all, nil
}

// servedPages is where a server has the documents, as the README of an archive has it too.
const servedPages = "http://127.0.0.1:8080/docs"

// pageLinks matches links of the README of a client to the papers of the repository.
var pageLinks = regexp.MustCompile(`\]\(\.\./\.\./(?:docs/)?(\w[\w-]*)\.md(#[\w-]*)?\)`)

// linkServed makes the links of READMEs to papers of the repository, which packages do not have, to
// the pages of a server.
func linkServed(files []file) {
	for i := range files {
		if files[i].name != "README.md" {
			continue
		}
		text := pageLinks.ReplaceAll(files[i].text, []byte("]("+servedPages+"/$1$2)"))
		files[i].text = bytes.ReplaceAll(text, []byte(servedPages+"/README"), []byte(servedPages))
	}
}

// stamp replaces the development version by the version of the release, in the file with a name. It
// fails unless the file has the development version exactly once.
func stamp(files []file, name, development, version string) error {
	for i, f := range files {
		if f.name != name {
			continue
		}
		if bytes.Count(f.text, []byte(development)) != 1 {
			break
		}
		files[i].text = bytes.Replace(f.text, []byte(development), []byte(version), 1)
		return nil
	}
	return fmt.Errorf("there is no %s with the version %s", name, development)
}

// pythonMetadata is the metadata of the package for pip, which the README follows. When pip builds
// the package from the repository, clients/python/build_wheel.py writes the same metadata. A test
// compares the two.
const pythonMetadata = `Metadata-Version: 2.1
Name: millrace
Version: %s
Summary: The client of Millrace: durable jobs over plain HTTP
License: Apache-2.0
Requires-Python: >=3.9
Description-Content-Type: text/markdown

`

// pythonFiles returns the committed files of the client for Python but its tests, with the version.
func (r *release) pythonFiles(dir, version string) ([]file, error) {
	files, err := r.committed(dir)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f file) bool { return strings.HasPrefix(f.name, "tests/") })
	linkServed(files)
	return files, stamp(files, "millrace/version.py", "0.0.0.dev0", version)
}

// modulePath is what programs import the client for Go below.
const modulePath = "github.com/millrace/millrace"

// goDirective matches the line of go.mod with the version of the language.
var goDirective = regexp.MustCompile(`(?m)^go \S+$`)

// goModule puts the client for Go into the archives, as a module that has the path of the
// repository's: programs import it by the same name, and find it by a replacement or a workspace.
// It needs nothing but the standard library, so nothing is downloaded.
func (r *release) goModule() error {
	const dir = "clients/go/"
	source, err := os.ReadFile(filepath.Join(r.root, "go.mod"))
	if err != nil {
		return err
	}
	directive := goDirective.Find(source)
	if directive == nil {
		return errors.New("go.mod has no version of Go")
	}
	r.clients = append(r.clients, file{dir + "go.mod", 0o644,
		fmt.Appendf(nil, "module %s\n\n%s\n", modulePath, directive)})
	files, err := r.committed("client")
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.name, ".go") && !strings.HasSuffix(f.name, "_test.go") {
			r.clients = append(r.clients, file{dir + "client/" + f.name, f.mode, f.text})
		}
	}
	return nil
}

// wheel writes the client for Python. A wheel is a zip archive with the modules, and with a folder
// of metadata and checksums.
func (r *release) wheel() error {
	const dir = "clients/python"
	version, err := pythonVersion(r.plainVersion())
	if err != nil {
		return err
	}
	folder, err := r.pythonFiles(dir, version)
	if err != nil {
		return err
	}
	var files []file
	var readme []byte
	for _, f := range folder {
		r.clients = append(r.clients, file{dir + "/" + f.name, f.mode, f.text})
		switch {
		case strings.HasPrefix(f.name, "millrace/"):
			files = append(files, f)
		case f.name == "README.md":
			readme = f.text
		}
	}
	info := "millrace-" + version + ".dist-info/"
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files = append(files, file{info + "LICENSE", 0o644, license},
		file{info + "METADATA", 0o644, append(fmt.Appendf(nil, pythonMetadata, version), readme...)},
		file{info + "WHEEL", 0o644, []byte("Wheel-Version: 1.0\nGenerator: millrace\n" +
			"Root-Is-Purelib: true\nTag: py3-none-any\n")})
	var record strings.Builder
	for _, f := range files {
		digest := sha256.Sum256(f.text)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name,
			base64.RawURLEncoding.EncodeToString(digest[:]), len(f.text))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	text, err := r.zip("", append(files, file{info + "RECORD", 0o644, []byte(record.String())}))
	if err != nil {
		return err
	}
	return r.write("millrace-"+version+"-py3-none-any.whl", text)
}

// These match the versions of Go that Python has an equal of. A tag has one of the words of PEP 440
// or none. A version of a commit after a tag ends in what Go appends for it (later).
var (
	tag   = regexp.MustCompile(`^(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.?(\d+))?$`)
	later = regexp.MustCompile(`^(.*?)([-.]0\.|-)(\d{14})-([0-9a-f]{12})$`)
)

// pythonWords are the words of PEP 440.
var pythonWords = map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}

// pythonVersion is a version in the words of PEP 440, in which versions have the same order. A
// commit after v1.2.3 comes before 1.2.4, which Go counts up to, and one after v1.2.3-rc.1 before
// the second candidate.
func pythonVersion(version string) (string, error) {
	base, end := version, ""
	found := later.FindStringSubmatch(version)
	if found != nil {
		base, end = found[1], ".dev"+found[3]+"+g"+found[4]
	}
	parts := tag.FindStringSubmatch(base)
	if parts == nil {
		return "", fmt.Errorf("the version %q is invalid in Python: a tag must be like v1.2.3, "+
			"v1.2.3-alpha.1, v1.2.3-beta.1 or v1.2.3-rc.1", version)
	}
	if parts[2] == "" {
		return parts[1] + end, nil
	}
	number, err := strconv.Atoi(parts[3])
	if err != nil {
		return "", err
	}
	if found != nil {
		number++
	}
	return parts[1] + pythonWords[parts[2]] + strconv.Itoa(number) + end, nil
}
