package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
)

// operatorToken sees to it that there is a token for the operator: the one that is set, the one in
// the data directory, or a new one there that only this user can read.
func operatorToken(s *config.Settings, log *slog.Logger) error {
	if !s.Operator.Token.Empty() {
		return nil
	}
	path := filepath.Join(s.DataDir, "operator.token")
	text, err := os.ReadFile(path)
	if err == nil && len(bytes.TrimSpace(text)) > 0 {
		s.Operator.Token = config.NewSecret(string(bytes.TrimSpace(text)))
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.UnableError("the operator's token cannot be read: %v", err)
	}
	token := rand.Text()
	if err := writeSecret(path, token+"\n"); err != nil {
		return cli.UnableError("the operator's token cannot be stored: %v", err)
	}
	s.Operator.Token = config.NewSecret(token)
	log.Info("made a token for the operator; /operators asks for none until operator.token is set",
		"file", path)
	return nil
}

// writeSecret makes a whole file, or none, that only this user can read.
func writeSecret(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
