package account

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// maxPepperFileBytes bounds the bytes that are read of a pepper file.
const maxPepperFileBytes = 4096

// LoadPepper reads the pepper from a file. If the file does not exist it is made with a new pepper,
// on stable storage and readable by this user only; of several processes that make it at the same
// time all get the same pepper. The file is not read again: it may be removed while the process
// runs.
//
// The file holds 32 bytes or more, plain or as hexadecimal digits.
func LoadPepper(path string) ([]byte, error) {
	pepper, err := readOrMakePepper(path)
	if err != nil {
		return nil, fmt.Errorf("the pepper file %s: %w", path, err)
	}
	return pepper, nil
}

// readOrMakePepper reads the file, and makes it only if it does not exist. Any other error is
// returned: a new pepper in place of one that cannot be read would lock out all clients.
func readOrMakePepper(path string) ([]byte, error) {
	pepper, err := readPepper(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return pepper, err
	}
	if err := makePepper(path); err != nil {
		return nil, err
	}
	return readPepper(path)
}

// readPepper reads the file and refuses one that other users can read or change.
func readPepper(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("others may read or change it (mode %04o): chmod 600 it, "+
			"and rotate the keys if they may have", mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPepperFileBytes+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if len(text) > maxPepperFileBytes {
		return nil, fmt.Errorf("it is larger than %d bytes", maxPepperFileBytes)
	}
	return decodePepper(text)
}

// decodePepper reads the content of the file: hexadecimal digits, with white space around them, or
// anything else as it is.
func decodePepper(text []byte) ([]byte, error) {
	pepper := text
	if plain := bytes.TrimSpace(text); len(plain) > 0 &&
		len(bytes.Trim(plain, "0123456789abcdefABCDEF")) == 0 {
		pepper = make([]byte, len(plain)/2)
		if _, err := hex.Decode(pepper, plain); err != nil {
			return nil, errors.New("it holds an odd number of hexadecimal digits")
		}
	} else if len(text) > minPepperBytes {
		pepper = bytes.TrimSuffix(text, []byte("\n")) // editors add a line end
	}
	if len(pepper) < minPepperBytes {
		return nil, fmt.Errorf("it holds %d bytes, at least %d are needed", len(pepper),
			minPepperBytes)
	}
	return pepper, nil
}

// makePepper makes a complete file or none, and leaves an existing file unchanged.
func makePepper(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return withoutPath(err)
	}
	f, err := os.CreateTemp(dir, ".pepper-") // mode 0600
	if err != nil {
		return withoutPath(err)
	}
	defer os.Remove(f.Name())
	var pepper [minPepperBytes]byte
	rand.Read(pepper[:]) // never fails
	_, err = f.WriteString(hex.EncodeToString(pepper[:]) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return withoutPath(err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return withoutPath(err)
	}
	return syncDir(dir)
}

// syncDir brings the directory entry of a new file to stable storage.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return withoutPath(err)
	}
	return withoutPath(errors.Join(d.Sync(), d.Close()))
}

// withoutPath removes the path from an error, since the message names it already.
func withoutPath(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
