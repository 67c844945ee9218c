package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The archives of one commit have the same bytes wherever and whenever they are made: files are
// ordered by name, belong to root and have the time of the commit, and no header names a machine.
// So anybody who has the same Go can make a release once more and compare checksums.txt.

// file is a file of an archive.
type file struct {
	name string
	mode os.FileMode
	text []byte
}

// papers are the documents of the repository in every archive.
var papers = []string{"CHANGELOG.md", "LICENSE"}

// files are what the archive of a binary has, in the order of their names.
func (r *release) files(b built) ([]file, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	all := []file{{b.program(), 0o755, program}, {"README.md", 0o644, r.readme(b)}}
	for _, name := range papers {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		all = append(all, file{name, 0o644, text})
	}
	for _, shell := range shells {
		if (shell == "powershell") == (b.os == "windows") {
			all = append(all, file{"completions/" + completionNames[shell], 0o644,
				r.completions[shell]})
		}
	}
	all = append(all, r.clients...)
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// completionNames are the names of the files of completions.
var completionNames = map[string]string{"bash": "millrace.bash", "zsh": "_millrace",
	"fish": "millrace.fish", "powershell": "millrace.ps1"}

// archive packs each binary with its documents and completions.
func (r *release) archive() error {
	for _, b := range r.built {
		files, err := r.files(b)
		if err != nil {
			return err
		}
		pack, end := r.tarball, ".tar.gz"
		if b.os == "windows" {
			pack, end = r.zip, ".zip"
		}
		name := r.name(b.platform, end)
		text, err := pack(strings.TrimSuffix(name, end)+"/", files)
		if err != nil {
			return err
		}
		r.packed[b.platform] = name
		if err := r.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// tarball packs files below a directory. All belong to root and have the time of the commit.
func (r *release) tarball(dir string, files []file) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		err := t.WriteHeader(&tar.Header{Name: dir + f.name, Mode: int64(f.mode),
			Size: int64(len(f.text)), ModTime: r.time, Uname: "root", Gname: "root",
			Format: tar.FormatUSTAR})
		if err != nil {
			return nil, err
		}
		if _, err := t.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// zip is tarball for Windows.
func (r *release) zip(dir string, files []file) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: dir + f.name, Method: zip.Deflate, Modified: r.time}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// write writes a file of the release.
func (r *release) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), text, 0o644)
}

// sum writes the checksums of all files, in the form of sha256sum.
func (r *release) sum() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, f := range files {
		digest, err := r.digest(f.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%s  %s\n", digest, f.Name())
	}
	return r.write("checksums.txt", []byte(all.String()))
}

// digest returns the SHA-256 of a file of the release.
func (r *release) digest(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.out, name))
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
