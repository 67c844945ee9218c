package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/disk"
)

// A backup is of a data directory: the database, the objects that it names, and the secrets. The
// streams are left out, as the database has what they have, and so are rows about processes.
//
//	backup    objects ─▶ database ─▶ objects once more ─▶ secrets ─▶ checksums ─▶ backup.json
//	restore   lock ─▶ staging: files by checksum ─▶ every page of the database ─▶ renames
//
// backup.json is written last, so a directory without it is no backup. The database is the last of
// the renames of a restore, so no server starts on a part of one.

// Names in a backup, which are those in the data directory.
const (
	objectsName = "objects"
	pepperName  = "pepper"
	tokenName   = "operator.token"
)

// backupFlags are the flags of `millrace backup`.
type backupFlags struct {
	settings  settingsFlags
	to        string
	noSecrets bool
	asJSON    bool
}

// backupCommand is `millrace backup`.
func backupCommand(p cli.Process) *cobra.Command {
	var f backupFlags
	c := &cobra.Command{
		Use:   "backup",
		Short: "Copy the data directory of a server on SQLite while it runs",
		Long: `Copy what a server on SQLite keeps in its data directory to a new directory: the
database as it is at one moment, the objects, the pepper and the operator's token. The
server may run and be used meanwhile. What it has acknowledged before the command
begins is in the copy.

The copy lists the checksums of its files (SHA256SUMS), and has a backup.json when it
is complete. It holds secrets, and is readable for its owner alone; with --no-secrets
pepper and token are left out. Objects at the setting objects.url are not copied.`,
		Example: "  millrace backup --to /var/backups/millrace/today",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			s, err := f.settings.load(p, c)
			if err != nil {
				return err
			}
			return workError(ctx, f.run(ctx, p, s))
		},
	}
	f.settings.register(c)
	c.Flags().StringVar(&f.to, "to", "", "the directory to make, or an empty one")
	c.Flags().BoolVar(&f.noSecrets, "no-secrets", false,
		"leave out the pepper and the operator's token")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	_ = c.MarkFlagRequired("to")
	_ = c.MarkFlagDirname("to")
	return c
}

// workError gives an error of long work its exit code: that of an interruption where a signal has
// ended it. An error that has a code keeps it.
func workError(ctx context.Context, err error) error {
	var coded *cli.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.ErrInterrupted
	case err == nil, errors.As(err, &coded):
		return err
	}
	return cli.FailedError("%s", plainError(err))
}

// run makes the backup. What it has made is removed if it fails.
func (f *backupFlags) run(ctx context.Context, p cli.Process, s *nodeSettings) (err error) {
	kind := databaseOf(s)
	if kind.backup == nil {
		return cli.UsageError("the store is %s, which is backed up by its own programs: "+
			"docs/backup.md has the commands", s.Store)
	}
	if err := backup.MakeEmpty(f.to); err != nil {
		return cli.WithCode(cli.ExitUnable, err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(f.to)
		}
	}()
	m := backup.Manifest{Version: cli.ReadBuildInfo().Version, CreatedAt: p.Now().UTC(),
		Store: kind.kind, Objects: objectsName, Secrets: !f.noSecrets}
	if s.Objects.URL != "" {
		m.Objects = s.Objects.URL
	}
	progress := p.NewProgress("backup", 0)
	defer progress.End()
	if err := f.copy(ctx, s, progress); err != nil {
		return err
	}
	made, err := backup.Seal(ctx, f.to, m, func(n int64) {
		progress.Add(0, "checksums")
	})
	if err != nil {
		return err
	}
	progress.End()
	if f.asJSON {
		return writeJSON(p, made)
	}
	fmt.Fprintf(p.Stdout, "%s: %s, %s\n", f.to, cli.Pluralize(made.Files, "file"),
		formatBytes(made.Bytes))
	if s.Objects.URL != "" {
		fmt.Fprintf(p.Stdout, "not in it: the objects in %s\n", s.Objects.URL)
	}
	return nil
}

// copy copies objects, database and secrets. Objects are stored before the database names them, and
// may be deleted after the database has forgotten them. So they are copied before the database, and
// what has come since is copied after it: whatever the copy of the database names was there at one
// of the two times.
func (f *backupFlags) copy(ctx context.Context, s *nodeSettings, g *cli.Progress) error {
	objects := func() error {
		if s.Objects.URL != "" {
			return nil
		}
		return backup.CopyTree(ctx, filepath.Join(s.DataDir, objectsName),
			filepath.Join(f.to, objectsName), isTemporary,
			func(n int64) { g.Add(n, "objects") })
	}
	if err := objects(); err != nil {
		return err
	}
	g.Add(0, "the database")
	if err := databaseOf(s).backup(ctx, s, f.to); err != nil {
		return err
	}
	if err := objects(); err != nil {
		return err
	}
	if f.noSecrets {
		return nil
	}
	for _, secret := range []struct{ name, from string }{{pepperName, s.PepperFile()},
		{tokenName, operatorTokenFile(s)}} {
		_, err := backup.CopyFile(secret.from, filepath.Join(f.to, secret.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isTemporary reports whether a name in the directory of the objects is kept for files that are
// being written.
func isTemporary(name string) bool { return name == ".temp" }

// formatBytes writes a size in MiB.
func formatBytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// restoreFlags are the flags of `millrace restore`.
type restoreFlags struct {
	settings settingsFlags
	from     string
	dir      string
}

// restoreCommand is `millrace restore`.
func restoreCommand(p cli.Process) *cobra.Command {
	var f restoreFlags
	c := &cobra.Command{
		Use:   "restore",
		Short: "Make a data directory of a backup",
		Long: `Make a data directory of what 'millrace backup' has copied. The checksum of each file
is compared, and every page of the database is checked. The data directory must be
empty or missing, and no server runs on it before the restore has ended.`,
		Example: "  millrace restore --from /var/backups/millrace/today --data-dir millrace-data",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			s, err := f.settings.load(p, c)
			if err != nil {
				return err
			}
			if f.dir == "" {
				f.dir = s.DataDir
			}
			return workError(ctx, f.run(ctx, p))
		},
	}
	f.settings.register(c)
	c.Flags().StringVar(&f.from, "from", "", "the directory of the backup")
	c.Flags().StringVar(&f.dir, "data-dir", "",
		"the data directory to make (else the setting data_dir)")
	_ = c.MarkFlagRequired("from")
	_ = c.MarkFlagDirname("from")
	_ = c.MarkFlagDirname("data-dir")
	return c
}

// run restores under the lock that servers take.
func (f *restoreFlags) run(ctx context.Context, p cli.Process) error {
	m, err := backup.Open(f.from)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(databases, func(d *database) bool { return d.kind == m.Store })
	if at < 0 || databases[at].prepareRestored == nil {
		return cli.FailedError("the backup is of a store of the kind %q, which this version does not "+
			"restore", m.Store)
	}
	lock := databaseName + ".lock"
	if err := backup.MakeEmpty(f.dir, backup.Staging, lock); err != nil {
		return cli.WithCode(cli.ExitUnable, err)
	}
	unlock, err := disk.Lock(filepath.Join(f.dir, lock))
	if err != nil {
		return cli.UnableError("%s", plainError(err))
	}
	defer unlock()
	progress := p.NewProgress("restore", m.Bytes)
	defer progress.End()
	staging, err := backup.Unpack(ctx, f.from, f.dir, func(n int64) {
		progress.Add(n, "")
	})
	if err != nil {
		return err
	}
	progress.Add(0, "checking the database")
	if err := databases[at].prepareRestored(ctx, staging); err != nil {
		return err
	}
	if err := backup.Publish(staging, databaseName); err != nil {
		return err
	}
	progress.End()
	fmt.Fprintf(p.Stdout, "%s: %s of %s\n", f.dir, cli.Pluralize(m.Files, "file"),
		m.CreatedAt.Format("2006-01-02 15:04:05 MST"))
	if m.Objects != objectsName {
		fmt.Fprintf(p.Stdout, "not in it: the objects in %s\n", m.Objects)
	}
	if !m.Secrets {
		fmt.Fprintln(p.Stdout, "not in it: the pepper and the operator's token")
	}
	return nil
}
