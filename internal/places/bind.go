package places

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

const (
	// kind is that of the records: one for the objects and one for each stream, with their ids, and
	// one beside it for the holder of what only one node reaches.
	kind = "place"
	// objects is the name of the objects among the places.
	objects = "objects"
	// holderSuffix ends the key of the record of a holder. Its body is the fingerprint of the
	// holder's directory. It expires, so that a directory may be moved, and is renewed while the
	// node runs.
	holderSuffix = "/holder"
	holdTime     = 3 * bindInterval
)

// bind compares what this node has with what the database says, writes what is not there yet, and
// renews what the node holds. A refusal is an error that Refused knows.
func (p *Places) bind(ctx context.Context, e *engine.Engine) error {
	ids, err := p.ids(ctx, e)
	if err != nil {
		return err
	}
	if err := p.loadFingerprints(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	var found comparison
	err = e.ChangeRecords(ctx, kind, func(w engine.RecordWriter) error {
		found = comparison{rebind: p.Rebind} // it may run again
		for _, name := range slices.Sorted(maps.Keys(ids)) {
			if err := found.compareID(w, name, ids[name]); err != nil {
				return err
			}
			if err := found.compareHolder(w, name, p.fingerprintOf(name)); err != nil {
				return err
			}
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
		return refusal // which is no failure of the store
	}
	// What was taken once is not taken again from who takes it after this node.
	p.boundID, p.Rebind = ids[objects], false
	return nil
}

// comparison is what one look at the records has found.
type comparison struct {
	rebind bool
	others []string // names of places that are not the database's
	held   []string // names of places that another node holds
	writes []job.Record
}

func (c *comparison) compareID(r engine.RecordReader, name, id string) error {
	bound, err := r.Record(kind, name)
	isBound := bound != nil && !c.rebind
	switch {
	case err != nil:
		return err
	case bound != nil && string(bound.Body) == id:
	case isBound || id == "":
		c.others = append(c.others, name)
	default:
		c.writes = append(c.writes, job.Record{Kind: kind, Key: name, Body: []byte(id)})
	}
	return nil
}

func (c *comparison) compareHolder(r engine.RecordReader, name, fingerprint string) error {
	if fingerprint == "" {
		return nil
	}
	holder, err := r.Record(kind, name+holderSuffix)
	isHeld := holder != nil && string(holder.Body) != fingerprint
	switch {
	case err != nil:
		return err
	case isHeld && !c.rebind:
		c.held = append(c.held, name)
	default:
		c.writes = append(c.writes, job.Record{Kind: kind, Key: name + holderSuffix,
			Body: []byte(fingerprint), ExpiresAt: r.Now().Add(holdTime)})
	}
	return nil
}

// ids are what this node's places are, by their names.
func (p *Places) ids(ctx context.Context, e *engine.Engine) (map[string]string, error) {
	ids := map[string]string{}
	if p.Streams != nil {
		ids = p.Streams.IDs()
	}
	within, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	id, err := p.objectsID(within, e)
	if err != nil && p.boundID == "" {
		return nil, err
	}
	p.markers.Report(ctx, err)
	if err != nil {
		id = p.boundID // what the node holds is renewed while the objects are away
	}
	ids[objects] = id
	return ids, nil
}

// objectsID is the id of the objects. A marker that is missing is put back with the id that this
// node was bound with. Else one is made where the database knows none either; where it does, these
// are other objects, or they have lost their marker.
func (p *Places) objectsID(ctx context.Context, e *engine.Engine) (string, error) {
	id, err := p.Objects.ID(ctx)
	if err != nil || id != "" {
		return id, err
	}
	id = p.boundID
	if id == "" {
		var bound *job.Record
		err := e.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
			bound, err = r.Record(kind, objects)
			return err
		})
		isOther := bound != nil && !p.Rebind
		if err != nil || isOther {
			return "", err
		}
		id = rand.Text()
	}
	return p.Objects.CreateID(ctx, id)
}

// loadFingerprints learns the fingerprints of the directories, which stay those of the process.
func (p *Places) loadFingerprints() error {
	if p.fingerprints != nil {
		return nil
	}
	fingerprints := map[string]string{}
	for _, dir := range []string{p.ObjectsDir, p.StreamsDir} {
		if dir == "" {
			continue
		}
		fingerprint, err := disk.Fingerprint(dir)
		if err != nil {
			return err
		}
		fingerprints[dir] = fingerprint
	}
	p.fingerprints = fingerprints
	return nil
}

// fingerprintOf is that of the directory of one of the places, empty where other nodes reach it.
func (p *Places) fingerprintOf(name string) string {
	if name == objects {
		return p.fingerprints[p.ObjectsDir]
	}
	return p.fingerprints[p.StreamsDir]
}
