package storageid

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

const (
	// RecordKind is the kind of the records: one for the objects and one for each stream, with
	// their ids, and one beside it for the holder of what only one node reaches. It is stored data.
	RecordKind = "place"
	// objects is the name of the objects; streams have their own names.
	objects = "objects"
	// holderSuffix ends the key of the record of a holder, whose body is the fingerprint of the
	// holder's directory. The node renews the record while it runs. Otherwise the record expires
	// after holdTime, so that a directory may be moved.
	holderSuffix = "/holder"
	holdTime     = 3 * bindInterval
)

// bind compares the storage of this node with the records of the database, writes records that are
// not there yet, and renews those of the node. All of that is one transaction, so of several nodes
// that start at the same time one writes its ids and the others compare with them. A refusal is an
// error that Refused recognises.
func (b *Binding) bind(ctx context.Context, e *engine.Engine) error {
	ids, err := b.ids(ctx, e)
	if err != nil {
		return err
	}
	if err := b.loadFingerprints(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	var found comparison
	err = e.ChangeRecords(ctx, RecordKind, func(w engine.RecordWriter) error {
		found = comparison{rebind: b.Rebind} // it may run again
		names := slices.Sorted(maps.Keys(ids))
		waiting := b.waitingStreams(ids)
		if err := found.read(w, slices.Concat(names, waiting)); err != nil {
			return err
		}
		if slices.ContainsFunc(waiting, found.isKnown) {
			return errStreamsWait
		}
		for _, name := range names {
			found.compareID(name, ids[name])
			found.compareHolder(name, b.fingerprintOf(name), w.Now())
		}
		if len(found.others) > 0 {
			found.others = append(found.others, waiting...) // their streams are the node's own too
		}
		isRefused := found.refusal() != nil
		if isRefused || len(found.writes) == 0 {
			return nil
		}
		return w.UpsertRecords(found.writes...)
	})
	if err != nil {
		return err
	}
	if refusal := found.refusal(); refusal != nil {
		return refusal // the store works, so this is not an error of the transaction
	}
	// Rebind applies once. If another node rebinds the database later, this node must not take it
	// back.
	b.boundID, b.Rebind = ids[objects], false
	return nil
}

// errStreamsWait says that the database is bound to streams that this node has not opened.
var errStreamsWait = errors.New("storageid: streams wait for their first message")

// waitingStreams returns the names of the streams that have no ids, as they wait for their first
// message.
func (b *Binding) waitingStreams(ids map[string]string) []string {
	if b.Streams == nil {
		return nil
	}
	return slices.DeleteFunc(b.Streams.Names(), func(name string) bool { return ids[name] != "" })
}

// comparison is the result of one comparison with the records. If the transaction runs again, it
// begins with a new one.
type comparison struct {
	rebind bool
	known  map[string]*job.Record // of the database, by their keys
	others []string               // names of storage with another id than the database has
	inUse  []string               // names of storage that another node uses
	writes []job.Record
}

// read reads the records of all storage with one statement, as this is repeated every few seconds.
func (c *comparison) read(r engine.RecordReader, names []string) error {
	keys := slices.Clone(names)
	for _, name := range names {
		keys = append(keys, name+holderSuffix)
	}
	records, err := r.RecordsOf(RecordKind, keys...)
	c.known = map[string]*job.Record{}
	for i := range records {
		c.known[records[i].Key] = &records[i]
	}
	return err
}

// isKnown reports whether the database has an id of the storage with a name.
func (c *comparison) isKnown(name string) bool { return c.known[name] != nil }

// compareID compares the id of one storage with its record. The id is empty for objects without a
// marker; it differs from every record. With rebind the record is overwritten.
func (c *comparison) compareID(name, id string) {
	bound := c.known[name]
	isBound := bound != nil && !c.rebind
	switch {
	case bound != nil && string(bound.Body) == id:
	case isBound || id == "":
		c.others = append(c.others, name)
	default:
		c.writes = append(c.writes, job.Record{Kind: RecordKind, Key: name, Body: []byte(id)})
	}
}

// compareHolder compares the holder of one storage with the fingerprint of this node's directory,
// and renews the record if they are equal. If other nodes reach a storage, it has no holder and an
// empty fingerprint.
func (c *comparison) compareHolder(name, fingerprint string, now time.Time) {
	if fingerprint == "" {
		return
	}
	holder := c.known[name+holderSuffix]
	isInUse := holder != nil && string(holder.Body) != fingerprint
	switch {
	case isInUse && !c.rebind:
		c.inUse = append(c.inUse, name)
	default:
		c.writes = append(c.writes, job.Record{Kind: RecordKind, Key: name + holderSuffix,
			Body: []byte(fingerprint), ExpiresAt: now.Add(holdTime)})
	}
}

// ids returns the ids of this node's objects and streams by their names. While the objects are
// unavailable, it returns the id that they were bound with, so that the node still renews its hold
// on its directories.
func (b *Binding) ids(ctx context.Context, e *engine.Engine) (map[string]string, error) {
	ids := map[string]string{}
	if b.Streams != nil {
		ids = b.Streams.IDs()
	}
	within, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	id, err := b.objectsID(within, e)
	if err != nil && b.boundID == "" {
		return nil, err
	}
	b.markers.Report(ctx, err)
	if err != nil {
		id = b.boundID
	}
	ids[objects] = id
	return ids, nil
}

// objectsID returns the id of the objects from their marker. If the marker is missing, it is
// written: with the id that this node was bound with or, if the database has no id either, with a
// new one. If the database has an id and this node was not bound yet, objectsID returns none: these
// are other objects, or they have lost their marker.
func (b *Binding) objectsID(ctx context.Context, e *engine.Engine) (string, error) {
	id, err := b.Objects.ID(ctx)
	if err != nil || id != "" {
		return id, err
	}
	id = b.boundID
	if id == "" {
		var bound *job.Record
		err := e.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
			bound, err = r.Record(RecordKind, objects)
			return err
		})
		isOther := bound != nil && !b.Rebind
		if err != nil || isOther {
			return "", err
		}
		id = rand.Text()
	}
	return b.Objects.CreateID(ctx, id)
}

// loadFingerprints reads the fingerprints of the directories once. They do not change while the
// process runs, as it holds the lock of its data directory.
func (b *Binding) loadFingerprints() error {
	if b.fingerprints != nil {
		return nil
	}
	fingerprints := map[string]string{}
	for _, dir := range []string{b.ObjectsDir, b.StreamsDir} {
		if dir == "" {
			continue
		}
		fingerprint, err := disk.Fingerprint(dir)
		if err != nil {
			return err
		}
		fingerprints[dir] = fingerprint
	}
	b.fingerprints = fingerprints
	return nil
}

// fingerprintOf returns the fingerprint of the directory of one storage. It is empty if other nodes
// reach the storage.
func (b *Binding) fingerprintOf(name string) string {
	if name == objects {
		return b.fingerprints[b.ObjectsDir]
	}
	return b.fingerprints[b.StreamsDir]
}
