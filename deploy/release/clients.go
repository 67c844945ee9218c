package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The clients of other languages are packages that pip and npm install from a file. In the
// repository they have a version of development; the release writes its own in its place.

// committed returns the files below a folder of the repository that are committed, by their names
// in it. Others that lie there would be in no later build.
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

// stamp puts the version into the file with this name, which has the other one exactly once.
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

// pythonMetadata is what pip shows, followed by the README. That of a package which pip builds from
// the folder is in clients/python/build_wheel.py; the test compares them.
const pythonMetadata = `Metadata-Version: 2.1
Name: millrace
Version: %s
Summary: The client of Millrace: durable jobs over plain HTTP
License: Apache-2.0
Requires-Python: >=3.9
Description-Content-Type: text/markdown

`

// wheel writes the client for Python. A wheel is a zip with the modules, and with a folder that
// says what they are and has their checksums.
func (r *release) wheel() error {
	const dir = "clients/python"
	version, err := pythonVersion(r.plainVersion())
	if err != nil {
		return err
	}
	files, err := r.committed(dir + "/millrace")
	if err != nil {
		return err
	}
	if err := stamp(files, "version.py", "0.0.0.dev0", version); err != nil {
		return err
	}
	for i := range files {
		files[i].name = "millrace/" + files[i].name
	}
	info := "millrace-" + version + ".dist-info/"
	readme, err := os.ReadFile(filepath.Join(r.root, dir, "README.md"))
	if err != nil {
		return err
	}
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

// The versions of Go that Python has an equal of: with one of the words that PEP 440 knows, or none
// (tag), and what Go appends for a commit after a tag (later).
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
		return "", fmt.Errorf("the version %q is none that Python has: a tag is v1.2.3, "+
			"or that with -alpha.1, -beta.1 or -rc.1", version)
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
