package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// A node that was killed is still the leader until its terms end: seconds later, for a sweep up to
// an hour. A restart on the same data directory need not wait for that: it takes the lock of the
// directory, which proves that the former process has ended, reads that process's node name from
// the file beside the lock, and ends its terms. The file also has the fingerprint of the directory:
// the process that is named in a copy of the directory may still be running.

// endFormerTerms ends the terms of the process that ran on the data directory before. It is called
// once the node listens. A failure is logged and does no harm: the terms end by themselves.
func (d *deps) endFormerTerms(ctx context.Context, url string) {
	err := d.lockAndEndTerms(ctx, url)
	shared := job.IsKind(err, job.Conflict) // another process runs on the directory as well
	if err != nil && !shared && ctx.Err() == nil {
		d.log.Warn("the terms of the process before this one could not be ended; they will end "+
			"by themselves", telemetry.ErrorMessage, err)
	}
}

// lockAndEndTerms locks the data directory until the node ends, and ends the terms. The error is a
// Conflict where another process holds the lock, as several nodes on one PostgreSQL may: that one
// lives, and its terms with it.
func (d *deps) lockAndEndTerms(ctx context.Context, url string) error {
	if err := d.lockDirectory(); err != nil {
		return err
	}
	if err := disk.Announce(lockFile(d.settings), url); err != nil {
		return err
	}
	return d.endTermsOf(ctx, filepath.Join(d.settings.DataDir, "node"))
}

// lockDirectory takes the lock of the data directory and does not wait for it; close releases it,
// and the kernel does for a process that is killed.
func (d *deps) lockDirectory() (err error) {
	if err := os.MkdirAll(d.settings.DataDir, 0o700); err != nil {
		return err
	}
	d.unlock, err = disk.Lock(lockFile(d.settings))
	return err
}

// lockFile is the file that the node of a data directory has locked, with its process and address.
func lockFile(s *nodeSettings) string { return filepath.Join(s.DataDir, "node.lock") }

// namingServer adds to the error of a start that a server already runs on the data directory, where
// one does and the error may come from it: it has the address, or the local database.
func namingServer(s *nodeSettings, err error) error {
	if databaseOf(s).shared && !job.IsKind(err, job.Conflict) {
		return err
	}
	pid, url := disk.Holder(lockFile(s))
	if pid == "" {
		return err
	}
	return cli.WithCode(cli.ExitCode(err), fmt.Errorf("a server already runs in this folder, at %s "+
		"(process %s, with the data of %s): use that one, or start this one with another data_dir "+
		"and listen; %w", url, pid, s.DataDir, err))
}

// endTermsOf ends the terms of the node that the file names, and writes the own name into it. The
// file has two lines: the name of a node and the fingerprint of the directory that it ran on. With
// PostgreSQL a file with another fingerprint ends no terms. The new content takes its place by a
// rename, so that a crash leaves the old file or the new one.
func (d *deps) endTermsOf(ctx context.Context, path string) error {
	former, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fingerprint, err := disk.Fingerprint(filepath.Dir(path))
	if err != nil {
		return err
	}
	name, rest, _ := strings.Cut(string(former), "\n")
	// A database in the directory has terms of its own, which no other process renews.
	hasEnded := strings.TrimSpace(rest) == fingerprint || !databaseOf(d.settings).shared
	if name != "" && hasEnded {
		if err := d.engine.ReleaseLeadershipOf(ctx, name); err != nil {
			return err
		}
	}
	next := path + ".next"
	text := d.node + "\n" + fingerprint + "\n"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
