// Package places keeps the nodes of one database to the same objects and streams. Which they
// are, the node that starts first writes into the database, as it does with the pepper. A node
// with others would lose what is stored through it: it must not serve what is kept there.
package places

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// Config is what Places are made of.
type Config struct {
	Log     *slog.Logger
	Objects *object.Objects
	Streams *stream.Streams // nil where the node has none
	Rebind  bool            // make this node's places the database's, whatever they were
}

// Places are the objects and streams of one node. The methods of nil, for a database that no
// other node can have, find nothing wrong.
type Places struct {
	Config
	settled chan struct{} // closed when it is known whether they are the database's
	wrong   error         // why they are not; read after settled is closed
	binding outage.Loop   // until it is known, FetchBox and Images run no jobs
}

// New makes places that are not bound yet.
func New(c Config) *Places {
	return &Places{Config: c, settled: make(chan struct{}),
		binding: outage.Loop{Log: c.Log, Name: "binding of objects and streams"}}
}

// kind is that of the records: one for the objects, one for each stream.
const kind = "place"

const (
	bindTime  = 5 * time.Second // bounds one try
	bindPause = 5 * time.Second
)

// Bind finds out whether the places are the database's, which they become if it has none. Where
// the objects are away it goes on trying until ctx ends.
func (p *Places) Bind(ctx context.Context, e *engine.Engine) {
	if p == nil || p.try(ctx, e) {
		return
	}
	go func() {
		pause := time.NewTicker(bindPause)
		defer pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			if p.try(ctx, e) {
				return
			}
		}
	}()
}

// try reports whether it is known now.
func (p *Places) try(ctx context.Context, e *engine.Engine) bool {
	within, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	err := p.bind(within, e)
	_, refused := Refused(err) // a store that is read-only says nothing about the places
	switch {
	case refused:
		p.Log.Error("this node refuses FetchBox and Images: give it the objects and streams "+
			"of the other nodes on this database "+
			"(objects.url, objects.bucket, stream.url); "+
			"where those are lost or have moved, start one node with rebind_storage=true",
			telemetry.ErrorMessage, err)
		p.wrong = err
	case err != nil:
		p.binding.Report(ctx, err)
		return false
	}
	p.binding.Report(ctx, nil)
	close(p.settled)
	return true
}

func (p *Places) bind(ctx context.Context, e *engine.Engine) error {
	ids, err := p.ids(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	err = e.ChangeRecords(ctx, kind, func(w engine.RecordWriter) error {
		wrong = nil // it may run again
		var unbound []job.Record
		for _, name := range slices.Sorted(maps.Keys(ids)) {
			bound, err := w.Record(kind, name)
			switch {
			case err != nil:
				return err
			case bound != nil && string(bound.Body) == ids[name]:
			case bound != nil && !p.Rebind:
				wrong = append(wrong, name)
			default:
				unbound = append(unbound,
					job.Record{Kind: kind, Key: name, Body: []byte(ids[name])})
			}
		}
		if len(wrong) > 0 || len(unbound) == 0 {
			return nil
		}
		return w.UpsertRecords(unbound...)
	})
	if err != nil {
		return err
	}
	return others(wrong) // which is no failure of the store
}

// objects is the name of the objects among the places.
const objects = "objects"

// ids are what this node's places are, by their names.
func (p *Places) ids(ctx context.Context) (map[string]string, error) {
	ids := map[string]string{}
	if p.Streams != nil {
		ids = p.Streams.IDs()
	}
	id, err := p.Objects.ID(ctx)
	ids[objects] = id
	return ids, err
}

// others says which places are not those of the nodes that were first.
func others(names []string) error {
	streams := slices.DeleteFunc(slices.Clone(names),
		func(name string) bool { return name == objects })
	what, settings := "objects", "objects.url and objects.bucket"
	switch {
	case len(names) == 0:
		return nil
	case len(streams) == len(names):
		what, settings = "streams", "stream.url"
	case len(streams) > 0:
		what, settings = "objects and streams", "objects.url, objects.bucket and stream.url"
	}
	return &job.Error{Kind: job.ReadOnly, Op: bindOp, Msg: "the " + what +
		" of this node are not those of the other nodes on this database: " +
		settings + " must be the same on all"}
}

const bindOp = "places.bind"

// Check fails with ReadOnly where the places are not the database's. As long as that is not
// known nothing is wrong.
func (p *Places) Check() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.settled:
		return p.wrong
	default:
		return nil
	}
}

// Guard is a handler that serves only where Check finds nothing wrong.
func (p *Places) Guard(handle httpapi.Handler) httpapi.Handler {
	return func(c *httpapi.Call) error {
		if err := p.Check(); err != nil {
			return err
		}
		return handle(c)
	}
}

// Await waits until the places are found to be the database's. False is that they are not, or
// that ctx has ended.
func (p *Places) Await(ctx context.Context) bool {
	if p == nil {
		return true
	}
	select {
	case <-p.settled:
		return p.wrong == nil
	case <-ctx.Done():
		return false
	}
}

// Refused tells whether an error is that of Check, which may be shown to callers.
func Refused(err error) (msg string, is bool) {
	var known *job.Error
	if errors.As(err, &known) && known.Op == bindOp {
		return known.Msg, true
	}
	return "", false
}
