package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/disk"
)

// A backup counts as one when its manifest is there, and the manifest is written when all else is
// on the disk:
//
//	files ─▶ SHA256SUMS, with the checksum of each ─▶ backup.json, with that of SHA256SUMS
//
// So a backup that was cut off is none, and whoever has verified backup.json can verify each file.
// A checksum is made of a file as it is read back, not of the bytes that were meant to be written.

// Names of the two files of a backup.
const (
	manifestFile = "backup.json"
	sumsFile     = "SHA256SUMS"
)

// format is the version of the form of a backup.
const format = 1

// Manifest says what a backup is of. It is stored data.
type Manifest struct {
	Format    int       `json:"format"`
	Version   string    `json:"version"` // of the program
	CreatedAt time.Time `json:"created_at"`
	Store     string    `json:"store"`   // the kind of database
	Objects   string    `json:"objects"` // where they are: in the backup, or a URL
	Secrets   bool      `json:"secrets"` // whether it has the pepper and the operator's token
	Files     int64     `json:"files"`
	Bytes     int64     `json:"bytes"`
	Sums      string    `json:"sha256sums"` // the checksum of SHA256SUMS
}

// Seal writes the checksums of all files of a directory, as they are on the disk, and then the
// manifest, which makes it a backup.
func Seal(ctx context.Context, dir string, m Manifest, report func(bytes int64)) (*Manifest,
	error) {
	m.Format = format
	whole := sha256.New()
	sums, err := os.OpenFile(filepath.Join(dir, sumsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer sums.Close()
	lines := bufio.NewWriter(io.MultiWriter(sums, whole))
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path) // path begins with dir
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir():
			return disk.Sync(path)
		case name == sumsFile:
			return nil
		}
		sum, n, err := sumOf(path)
		if err != nil {
			return err
		}
		m.Files++
		m.Bytes += n
		report(n)
		_, err = lines.WriteString(sumLine(sum, filepath.ToSlash(name)))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := lines.Flush(); err != nil {
		return nil, err
	}
	if err := sums.Sync(); err != nil {
		return nil, err
	}
	m.Sums = hex.EncodeToString(whole.Sum(nil))
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	_, err = write(filepath.Join(dir, manifestFile), bytes.NewReader(append(text, '\n')))
	if err != nil {
		return nil, err
	}
	return &m, disk.Sync(dir)
}

// sumOf returns the checksum of a file, and its size.
func sumOf(path string) (sum string, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	hash := sha256.New()
	n, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), n, err
}

// escapes are how sha256sum writes names with these characters, in a line that begins with \.
var (
	escapes   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")
)

// sumLine is a line of SHA256SUMS.
func sumLine(sum, name string) string {
	if escaped := escapes.Replace(name); escaped != name {
		return `\` + sum + "  " + escaped + "\n"
	}
	return sum + "  " + name + "\n"
}

// parseSumLine reads a line of SHA256SUMS.
func parseSumLine(line string) (sum, name string, err error) {
	line, isEscaped := strings.CutPrefix(strings.TrimSuffix(line, "\n"), `\`)
	sum, name, found := strings.Cut(line, "  ")
	if isEscaped {
		name = unescapes.Replace(name)
	}
	if !found || len(sum) != 2*sha256.Size || !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", "", fmt.Errorf("%s has a line that cannot be read: %q", sumsFile, line)
	}
	return sum, name, nil
}
