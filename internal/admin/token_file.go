package admin

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/internal/disk"
)

// ReadToken returns the operator's token in a file, "" if there is no file or nothing in it.
func ReadToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return string(bytes.TrimSpace(text)), nil
}

// preparedToken is a token on its way into the file: on stable storage beside it, under another
// name. One of commit and discard is called.
type preparedToken struct{ written, path string }

// prepareToken writes a token beside the file, for this user's eyes only (AD-002). It makes the
// directory if there is none.
func prepareToken(path, token string) (preparedToken, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return preparedToken{}, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".operator-") // mode 0600
	if err != nil {
		return preparedToken{}, err
	}
	p := preparedToken{f.Name(), path}
	_, err = f.WriteString(token + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		p.discard()
		return preparedToken{}, err
	}
	return p, nil
}

// commit puts the token in the place of the former one. After a crash the file has either of them.
func (p preparedToken) commit() error {
	if err := os.Rename(p.written, p.path); err != nil {
		p.discard()
		return err
	}
	return disk.Sync(filepath.Dir(p.path))
}

// discard removes what was written.
func (p preparedToken) discard() { _ = os.Remove(p.written) }

// writeToken puts a token into the file.
func writeToken(path, token string) error {
	p, err := prepareToken(path, token)
	if err != nil {
		return err
	}
	return p.commit()
}
