package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// The package has what an administrator of Debian expects: the unit, settings that an update does
// not overwrite, completions, and the documents. It has no scripts: who runs the service is made by
// the unit itself (DynamicUser), and a removal leaves the data where it is.

// The path of the binary in the unit of this folder, and in the package.
const (
	unitProgram    = "/usr/local/bin/millrace"
	packageProgram = "/usr/bin/millrace"
)

// settings is the settings file of the package, which the unit names.
const settings = `# The settings of the server; /usr/share/doc/millrace/README.md names those that are needed first,
# and "millrace config" prints all.
`

// packageDebian makes a package of each binary for Linux, with the unit of systemd. It starts
// nothing: a server needs settings first.
func (r *release) packageDebian() error {
	for _, b := range r.built {
		if b.os != "linux" {
			continue
		}
		contents, err := r.contents(b)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(&nfpm.Info{
			Name:          "millrace",
			Arch:          b.arch,
			Platform:      "linux",
			Version:       r.plainVersion(),
			VersionSchema: "none",
			Section:       "net",
			Priority:      "optional",
			Maintainer:    "The Millrace developers <millrace@users.noreply.github.com>",
			Homepage:      source,
			License:       "Apache-2.0",
			MTime:         r.time,
			Description: "self-hosted job platform\n" +
				"Durable jobs over plain HTTP, in one binary: submit work from any language, run it in\n" +
				"the server or in workers anywhere, receive signed webhooks about it.",
			Overridables: nfpm.Overridables{Contents: contents},
		})
		if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
			return err
		}
		var text bytes.Buffer
		if err := deb.Default.Package(info, &text); err != nil {
			return err
		}
		if err := r.write(r.name(b.platform, ".deb"), text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// contents writes the files of a package where nfpm finds them, and returns their places.
func (r *release) contents(b built) (files.Contents, error) {
	unit, err := os.ReadFile(filepath.Join(r.root, "deploy", "millrace.service"))
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(unit), unitProgram) {
		return nil, errors.New("deploy/millrace.service does not start " + unitProgram)
	}
	const docs = "/usr/share/doc/millrace/"
	packed := map[string][]byte{
		"/usr/lib/systemd/system/millrace.service": []byte(strings.ReplaceAll(string(unit),
			unitProgram, packageProgram)),
		"/usr/share/bash-completion/completions/millrace":    r.completions["bash"],
		"/usr/share/zsh/vendor-completions/_millrace":        r.completions["zsh"],
		"/usr/share/fish/vendor_completions.d/millrace.fish": r.completions["fish"],
		"/etc/millrace/millrace.toml":                        []byte(settings),
	}
	packed[docs+"README.md"] = r.readme(b)
	for _, paper := range [][2]string{{"copyright", "LICENSE"}, {"changelog", "CHANGELOG.md"}} {
		packed[docs+paper[0]], err = os.ReadFile(filepath.Join(r.root, paper[1]))
		if err != nil {
			return nil, err
		}
	}
	all := files.Contents{r.content(b.path, packageProgram, 0o755)}
	for _, place := range slices.Sorted(maps.Keys(packed)) {
		from := filepath.Join(r.work, b.arch, filepath.Base(filepath.Dir(place))+"-"+filepath.Base(place))
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(from, packed[place], 0o644); err != nil {
			return nil, err
		}
		one := r.content(from, place, 0o644)
		if strings.HasPrefix(place, "/etc/") {
			one.Type = files.TypeConfigNoReplace
		}
		all = append(all, one)
	}
	return all, nil
}

// content is one file of a package. It belongs to root.
func (r *release) content(from, place string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: place, FileInfo: &files.ContentFileInfo{
		Owner: "root", Group: "root", Mode: mode, MTime: r.time}}
}
