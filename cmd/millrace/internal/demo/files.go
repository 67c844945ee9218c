package demo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// The demo works on the files of a folder, which may change while it runs. A file that has changed
// since it was listed is not compared.

// fileStats is what the workers measure of a file.
type fileStats struct {
	// Size is the number of bytes.
	Size int64 `json:"size"`
	// Lines is the number of newline characters.
	Lines int64 `json:"lines"`
	// SHA256 has hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// measureFile reads a file to its end. On an error the result is the zero value. The workers call
// it, and the demo once more: what both find must be equal.
func measureFile(path string) (fileStats, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileStats{}, err
	}
	defer f.Close()
	var m fileStats
	h := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		m.Size += int64(n)
		m.Lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			m.SHA256 = hex.EncodeToString(h.Sum(nil))
			return m, nil
		}
		if err != nil {
			return fileStats{}, err
		}
	}
}

// foundFile is the state of a file when it was listed.
type foundFile struct {
	size    int64
	changed time.Time
}

// listing is the input of the demo: the files below a folder. Paths are relative to root, with
// slashes.
type listing struct {
	root string
	// files has the state of each file, by path.
	files map[string]foundFile
	// order has the paths, in the order of the walk.
	order []string
	// bytes is the size of all files.
	bytes int64
	// skipped counts entries that are no regular files, unreadable, or no UTF-8.
	skipped int
}

// listFiles lists the files below a folder. It leaves out hidden folders, and data directories of a
// server, whose files change while the demo runs. A path is the id of a job: those that are no
// valid UTF-8 or longer than 1024 characters are skipped. It fails if the folder itself cannot be
// read.
func listFiles(root string) (*listing, error) {
	l := &listing{root: root, files: map[string]foundFile{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return err
			}
			l.skipped++
			return nil
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || isDataDir(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, relErr := filepath.Rel(root, path)
		info, infoErr := d.Info()
		rel = filepath.ToSlash(rel)
		if relErr != nil || infoErr != nil || !info.Mode().IsRegular() || !utf8.ValidString(rel) ||
			utf8.RuneCountInString(rel) > 1024 {
			l.skipped++
			return nil
		}
		l.files[rel] = foundFile{info.Size(), info.ModTime()}
		l.order = append(l.order, rel)
		l.bytes += info.Size()
		return nil
	})
	return l, err
}

// isDataDir reports whether a folder is the data directory of a server.
func isDataDir(path string) bool {
	return exists(filepath.Join(path, "node.lock")) || exists(filepath.Join(path, "millrace.db"))
}

// exists reports whether there is something at the path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unchanged reports whether a file still has the size and time with which it was listed. A file
// that is gone has changed.
func (l *listing) unchanged(rel string) bool {
	info, err := os.Stat(filepath.Join(l.root, filepath.FromSlash(rel)))
	if err != nil {
		return false
	}
	was := l.files[rel]
	return info.Size() == was.size && info.ModTime().Equal(was.changed)
}

// modulePattern matches the module line of Millrace's go.mod.
var modulePattern = regexp.MustCompile(`(?m)^module\s+github\.com/millrace/millrace\s*$`)

// sourceRoot returns the root of Millrace's source tree when from is inside of it, else from
// itself.
func sourceRoot(from string) string {
	for dir := from; ; {
		text, _ := os.ReadFile(filepath.Join(dir, "go.mod")) // empty where none can be read
		if modulePattern.Match(text) {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			return from
		}
		dir = above
	}
}
