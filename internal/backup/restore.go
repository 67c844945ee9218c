package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/internal/disk"
)

// A restore never leaves a directory that looks whole and is not:
//
//	Open      the manifest and the list are those the backup was made with
//	Unpack    each file into the staging directory, compared with its checksum on the way
//	Publish   renames within one file system, the file that makes it a data directory last
//
// Where it is killed, the staging directory is still there, and a server refuses the directory. The
// restore is then run again from the beginning.

// Staging is the directory, within the one that is restored, which has the files at first.
const Staging = ".restoring"

// HasStaging reports whether a restore of a directory has not ended.
func HasStaging(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, Staging))
	return err == nil
}

// Open reads the manifest of a backup, and checks that its list of files is the one it was made
// with.
func Open(dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a complete backup: it has no %s", dir,
			manifestFile)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", manifestFile, err)
	}
	if m.Format != format {
		return nil, fmt.Errorf("the backup has the format %d, and this version reads %d", m.Format,
			format)
	}
	sum, _, err := sumOf(filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, err
	}
	if sum != m.Sums {
		return nil, fmt.Errorf("the backup is damaged: %s does not match its checksum", sumsFile)
	}
	return m, nil
}

// Unpack copies all files of a backup into the staging directory of another directory, and returns
// that. A file that is missing or differs from its checksum is an error.
func Unpack(ctx context.Context, dir, to string, report func(bytes int64)) (staging string,
	err error) {
	staging = filepath.Join(to, Staging)
	if err := os.RemoveAll(staging); err != nil {
		return "", err
	}
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return "", err
	}
	sums, err := os.Open(filepath.Join(dir, sumsFile))
	if err != nil {
		return "", err
	}
	defer sums.Close()
	for lines := bufio.NewReader(sums); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return staging, nil
		}
		if err = errors.Join(notEnd(err), ctx.Err()); err != nil {
			return "", err
		}
		sum, name, err := parseSumLine(line)
		if err != nil {
			return "", err
		}
		n, err := unpackFile(dir, staging, filepath.FromSlash(name), sum)
		if err != nil {
			return "", err
		}
		report(n)
	}
}

// notEnd returns an error that is not the end of a file.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// unpackFile copies a file and compares its checksum.
func unpackFile(dir, staging, name, sum string) (int64, error) {
	source, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	defer source.Close()
	target := filepath.Join(staging, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return 0, err
	}
	hash := sha256.New()
	n, err := write(target, io.TeeReader(source, hash))
	if err != nil {
		return n, err
	}
	if hex.EncodeToString(hash.Sum(nil)) != sum {
		return n, fmt.Errorf("the backup is damaged: %s does not match its checksum", name)
	}
	return n, nil
}

// Publish moves what was unpacked into the directory above, the file of the name last, and removes
// the staging directory.
func Publish(staging, last string) error {
	dir := filepath.Dir(staging)
	entries, err := os.ReadDir(staging)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(staging, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return disk.Sync(path)
	})
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if e.Name() != last {
			names = append(names, e.Name())
		}
	}
	for _, name := range append(names, last) {
		if err := os.Rename(filepath.Join(staging, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := disk.Sync(dir); err != nil {
		return err
	}
	return errors.Join(os.Remove(staging), disk.Sync(dir))
}
