package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// endFormerTerms ends the terms of the process that ran on the data directory before: it is over,
// as it would hold the lock otherwise. The file beside the lock holds its name, and the fingerprint
// of the directory: the process that is named in a copy may be running. Where it cannot be found
// out that it is over, the terms end by themselves within seconds.
func (k *deps) endFormerTerms(ctx context.Context) {
	err := k.lockDirectory()
	if err == nil {
		err = k.endFormerTerm(ctx, filepath.Join(k.settings.DataDir, "node"))
	}
	isNews := ctx.Err() == nil && !job.IsKind(err, job.Conflict)
	if err != nil && isNews { // else another process runs on it as well
		k.log.Warn("the terms of the process before this one could not be ended; they will end "+
			"by themselves",
			telemetry.ErrorMessage, err)
	}
}

func (k *deps) lockDirectory() (err error) {
	if err := os.MkdirAll(k.settings.DataDir, 0o700); err != nil {
		return err
	}
	k.unlock, err = disk.Lock(filepath.Join(k.settings.DataDir, "node.lock"))
	return err
}

func (k *deps) endFormerTerm(ctx context.Context, path string) error {
	former, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fingerprint, err := disk.Fingerprint(filepath.Dir(path))
	if err != nil {
		return err
	}
	name, rest, _ := strings.Cut(string(former), "\n")
	// the database on SQLite is in the directory, and copied with it
	isOver := strings.TrimSpace(rest) == fingerprint || !k.settings.Store.Postgres()
	if name != "" && isOver {
		if err := k.engine.EndTerms(ctx, name); err != nil {
			return err
		}
	}
	next := path + ".next"
	text := k.node + "\n" + fingerprint + "\n"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
