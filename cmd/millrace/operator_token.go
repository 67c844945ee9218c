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
	"github.com/millrace/millrace/internal/setting"
)

// The operator needs a token as soon as the server can be reached from elsewhere. For a server on
// loopback one is made at the first start and kept in a file of the data directory, so that later
// starts have the same. It does not close /operators there: only a token that the settings name
// does (G-FB-31), which is why newNode looks at the setting before this is called.

// operatorToken makes sure that there is a token for the operator: that of the setting, else that
// of the file operator.token in the data directory, else a new one in that file. The settings hold
// it afterwards. An empty file counts as none.
func operatorToken(s *nodeSettings, log *slog.Logger) error {
	if !s.Operator.Token.Empty() {
		return nil
	}
	path := filepath.Join(s.DataDir, "operator.token")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.UnableError("the operator's token cannot be read: %v", err)
	}
	if stored := string(bytes.TrimSpace(text)); stored != "" {
		s.Operator.Token = setting.NewSecret(stored)
		return nil
	}
	token := rand.Text()
	if err := writeSecret(path, token+"\n"); err != nil {
		return cli.UnableError("the operator's token cannot be stored: %v", err)
	}
	s.Operator.Token = setting.NewSecret(token)
	log.Info("made a token for the operator; /operators needs none until operator.token is set",
		"file", path)
	return nil
}

// writeSecret writes a file that only this user can read, and makes its directory if there is none.
// After a crash the file is complete or does not exist.
func writeSecret(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return cli.MoveInPlace(f.Name(), path, errors.Join(err, f.Sync(), f.Close()))
}
