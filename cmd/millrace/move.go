package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/store/move"
)

// A move copies a store to one on the other kind of database (package move). Objects are not in the
// database: they stay where they are, or are copied too.
//
//	the objects of SQLite       its data directory
//	the objects of PostgreSQL   what objects.url and data_dir say
//
// They are copied before the first row, so the new store never names an object that is not there. A
// move that was interrupted goes on where it was: package move marks both stores, and an object
// that is there already is not copied again.

// moveFlags are the flags of `millrace migrate` that make it a move.
type moveFlags struct {
	from, to string
	objects  string
	buckets  []string
	asJSON   bool
}

// The values of --objects.
const (
	keepObjects = "keep"
	copyObjects = "copy"
)

// register adds the flags.
func (f *moveFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.from, "from", "", "move this store: "+placeForms()+
		" or 'store' for that of the settings")
	c.Flags().StringVar(&f.to, "to", "", "the store to move it to, of the other kind and empty")
	c.Flags().StringVar(&f.objects, "objects", keepObjects, "what a move does with objects: keep "+
		"them where they are, or copy them")
	c.Flags().StringArrayVar(&f.buckets, "bucket", nil, "a bucket to copy besides the default one "+
		"and those that are folders; may be repeated")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print what was moved as JSON")
	c.MarkFlagsRequiredTogether("from", "to")
	c.MarkFlagsMutuallyExclusive("from", "status")
}

// isMove reports whether the command is a move.
func (f *moveFlags) isMove() bool { return f.from != "" || f.to != "" }

// place is a store as a flag names it.
type place struct {
	*database
	at   string // the data directory or the URL
	name string // for people, without a password
}

// parsePlace reads --from or --to.
func parsePlace(s *nodeSettings, flag, text string) (place, error) {
	if text == "store" {
		text = databaseOf(s).placeOf(s)
	}
	for _, d := range databases {
		at, isNamed := d.place(text)
		switch {
		case isNamed && d.shared:
			return place{d, at, setting.NewStoreURL(text).String()}, nil
		case isNamed:
			return place{d, at, text}, nil
		}
	}
	return place{}, cli.UsageError("%s: expected %s or store", flag, placeForms())
}

// moved is what a move prints with --json.
type moved struct {
	From    string       `json:"from"`
	To      string       `json:"to"`
	Tables  []move.Moved `json:"tables"`
	Objects *movedCount  `json:"objects"` // null where they are kept
}

// movedCount counts objects.
type movedCount struct {
	Copied  int64 `json:"copied"`
	Present int64 `json:"present"` // they were there already
	Bytes   int64 `json:"bytes"`
}

// run moves.
func (f *moveFlags) run(ctx context.Context, p cli.Process, s *nodeSettings) error {
	from, err := parsePlace(s, "--from", f.from)
	if err != nil {
		return err
	}
	to, err := parsePlace(s, "--to", f.to)
	if err != nil {
		return err
	}
	switch {
	case from.database == to.database:
		return cli.UsageError("a move is from one kind of database to another; docs/backup.md has " +
			"what makes a copy on the same kind")
	case f.objects != keepObjects && f.objects != copyObjects:
		return cli.UsageError("--objects: expected %s or %s", keepObjects, copyObjects)
	}
	source, err := from.openDatabase(ctx, false)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.openDatabase(ctx, true)
	if err != nil {
		return err
	}
	defer target.Close()
	progress := p.NewProgress("move", 0)
	defer progress.End()
	result := moved{From: from.name, To: to.name}
	c := move.Config{From: source, To: target, SkipKinds: []string{nodes.RecordKind,
		storageid.RecordKind}, NodeKind: nodes.RecordKind, ID: rand.Text(), Now: p.Now,
		Report: progress.SetTotal}
	if f.objects == copyObjects {
		result.Objects = &movedCount{}
		c.Objects = func(ctx context.Context) error {
			return f.copyObjects(ctx, s, from, to, result.Objects, progress)
		}
	}
	if result.Tables, err = move.Run(ctx, c); err != nil {
		return moveError(ctx, err)
	}
	progress.End()
	return f.print(p, result)
}

// openDatabase opens the database of a place.
func (a place) openDatabase(ctx context.Context, isTarget bool) (*move.Database, error) {
	database, err := a.openMove(ctx, a.at, a.name, isTarget)
	if err != nil {
		return nil, cli.UnableError("%s cannot be opened: %s", a.name, plainError(err))
	}
	return database, nil
}

// moveError gives the error of a move its exit code: a refusal is about this machine.
func moveError(ctx context.Context, err error) error {
	if job.IsKind(err, job.Conflict) && ctx.Err() == nil {
		return cli.UnableError("%s", plainError(err))
	}
	return workError(ctx, err)
}

// print prints what was moved.
func (f *moveFlags) print(p cli.Process, m moved) error {
	if f.asJSON {
		return writeJSON(p, m)
	}
	var rows int64
	for _, t := range m.Tables {
		rows += t.Rows
		fmt.Fprintf(p.Stdout, "%-13s%11d  %s\n", t.Table, t.Rows, t.Checksum)
	}
	if o := m.Objects; o != nil {
		fmt.Fprintf(p.Stdout, "%-13s%11d  %s copied, %d there already\n", "objects", o.Copied,
			formatBytes(o.Bytes), o.Present)
	}
	fmt.Fprintf(p.Stdout, "moved %s from %s to %s: counts and checksums agree\n",
		cli.Pluralize(rows, "row"), m.From, m.To)
	return nil
}

// copyObjects copies the objects of one place to those of the other.
func (f *moveFlags) copyObjects(ctx context.Context, s *nodeSettings, from, to place,
	count *movedCount, progress *cli.Progress) error {
	source, target := from.objectsConfig(s), to.objectsConfig(s)
	if source.URL == target.URL && sameDirectory(source.Dir, target.Dir) {
		return cli.UsageError("--objects copy: the objects of both are in %s; keep them there",
			source.Dir)
	}
	buckets, err := bucketsOf(source, f.buckets)
	if err != nil {
		return err
	}
	opened, err := object.Open(ctx, source)
	if err != nil {
		return err
	}
	defer opened.Close()
	into, err := object.Open(ctx, target)
	if err != nil {
		return err
	}
	defer into.Close()
	var mu sync.Mutex
	for _, bucket := range buckets {
		err := object.Copy(ctx, opened, into, bucket, func(bytes int64, isNew bool) {
			mu.Lock()
			defer mu.Unlock()
			if count.Present++; isNew {
				count.Present--
				count.Copied++
				count.Bytes += bytes
			}
			progress.Add(0, "objects: "+formatBytes(count.Bytes))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// objectsConfig says where the objects of a place are.
func (a place) objectsConfig(s *nodeSettings) object.Config {
	c := object.Config{Bucket: s.Objects.Bucket, Dir: filepath.Join(a.at, objectsName)}
	if a.shared {
		c.URL, c.Dir = s.Objects.URL, filepath.Join(s.DataDir, objectsName)
	}
	if c.URL != "" {
		c.Dir = ""
	}
	return c
}

// sameDirectory reports whether two paths lead to the same directory.
func sameDirectory(a, b string) bool {
	first, err := os.Stat(a)
	second, other := os.Stat(b)
	if err != nil || other != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	return os.SameFile(first, second)
}

// bucketsOf returns the buckets to copy: the default one, others that are named, and, of a
// directory, all of its folders.
func bucketsOf(c object.Config, named []string) ([]string, error) {
	buckets := append([]string{c.Bucket}, named...)
	if c.URL == "" {
		entries, err := os.ReadDir(c.Dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && object.ValidBucket(e.Name()) {
				buckets = append(buckets, e.Name())
			}
		}
	}
	slices.Sort(buckets)
	return slices.Compact(buckets), nil
}
