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

// maxPepperFileBytes bounds what is read of a pepper file.
const maxPepperFileBytes = 4096

// LoadPepper reads the pepper of a file, or makes the file with a new one, on
// stable storage and for this user's eyes only. Of several processes that make
// it at a time all get the same. The pepper is kept in memory from then on: the
// file may go away while the process runs.
//
// A file that is there holds 32 bytes or more, plain or as hexadecimal digits.
func LoadPepper(path string) ([]byte, error) {
	pepper, err := readPepper(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makePepper(path); err == nil {
			pepper, err = readPepper(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the pepper file %s: %w", path, err)
	}
	return pepper, nil
}

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
		return nil, fmt.Errorf(
			"others may read or change it (mode %04o): chmod 600 it, and rotate the keys if they may have", mode)
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

func decodePepper(text []byte) ([]byte, error) {
	pepper := text
	if plain := bytes.TrimSpace(text); len(plain) > 0 &&
		len(bytes.Trim(plain, "0123456789abcdefABCDEF")) == 0 {
		pepper = make([]byte, len(plain)/2)
		if _, err := hex.Decode(pepper, plain); err != nil {
			return nil, errors.New("it holds an odd number of hexadecimal digits")
		}
	} else if len(text) > minPepperBytes {
		pepper = bytes.TrimSuffix(text, []byte("\n")) // of an editor
	}
	if len(pepper) < minPepperBytes {
		return nil, fmt.Errorf("it holds %d bytes, at least %d are needed", len(pepper),
			minPepperBytes)
	}
	return pepper, nil
}

// makePepper makes a whole file or none, and leaves one that is there.
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
	_, err = rand.Read(pepper[:])
	if err == nil {
		_, err = f.WriteString(hex.EncodeToString(pepper[:]) + "\n")
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return withoutPath(err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return withoutPath(err)
	}
	return syncDir(dir)
}

// syncDir makes the name of a new file outlive a crash.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such thing
	}
	d, err := os.Open(dir)
	if err != nil {
		return withoutPath(err)
	}
	return withoutPath(errors.Join(d.Sync(), d.Close()))
}

// withoutPath drops the path of an error, which the message names already.
func withoutPath(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
