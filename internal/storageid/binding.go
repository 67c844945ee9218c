// Package storageid binds the storage of a node, its objects and its streams, to its database. All
// nodes of one database must use the same storage: what is stored through a node with another one
// would be lost for the others. So each storage has an id, and the database keeps the ids of those
// that it was bound to:
//
//	objects:  a marker in the default bucket  ┐              ┌ equal, or none yet: bound
//	streams:  the time they were created      ┘─> compare ─> ┤ another id:         refused
//	directory: who holds it, renewed every 5 s               └ another holder:     refused
//
// The node that starts first writes its ids, as it does with the pepper. A directory that only one
// node reaches also has a holder, so that a node on a copy of it, with the same ids, is refused
// while the other one runs. A node that is refused serves everything but FetchBox and Images, and
// looks again every few seconds. Decision 0032 has the reasons.
package storageid

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// Config is what a Binding needs. It comes from the settings of objects and streams.
type Config struct {
	Log     *slog.Logger
	Objects *object.Objects
	Streams *stream.Streams // nil where the node has none
	Rebind  bool            // bind the database to this node's storage, whatever it had before

	// The directories of what only this node reaches: its objects and its embedded stream server.
	// Empty where it is an outside service that keeps them.
	ObjectsDir, StreamsDir string
}

// Binding compares the storage of one node with the ids in its database. The methods of nil, for a
// database that no other node can have, find nothing wrong.
type Binding struct {
	Config
	binding outage.Loop // until it is known, FetchBox and Images run no jobs
	markers outage.Loop // the regular look at the marker of a node that is bound

	// Only the loop that binds uses these.
	fingerprints map[string]string // of the directories, by what they hold
	boundID      string            // of the objects, once the node was bound

	mu      sync.Mutex
	known   bool          // whether the comparison was made at least once
	refusal error         // why they are not, or that another node holds them
	changed chan struct{} // closed when known or refusal change
}

// New makes a Binding that has not looked at the database yet.
func New(c Config) *Binding {
	return &Binding{Config: c, changed: make(chan struct{}),
		binding: outage.Loop{Log: c.Log, Name: "binding of objects and streams"},
		markers: outage.Loop{Log: c.Log, Name: "marker of the objects"}}
}

const (
	bindTimeout = 5 * time.Second // bounds each of the two steps of a try
	// bindInterval is between two tries, and between two renewals of what the node holds.
	bindInterval = 5 * time.Second
	// markerInterval is between two looks at the marker where nothing is to be renewed.
	markerInterval = time.Minute
)

// Bind compares the storage with the ids in the database, which are written if it has none. Until
// ctx ends it repeats that in the background: the objects may be unavailable at first, the marker
// may be deleted, and another node may come with a copy of a directory. It is called once, when the
// engine runs.
func (b *Binding) Bind(ctx context.Context, e *engine.Engine) {
	if b == nil {
		return
	}
	b.bindOnce(ctx, e)
	go func() {
		for clock.Sleep(ctx, b.interval()) {
			b.bindOnce(ctx, e)
		}
	}()
}

// interval is how long to wait before the next look. Only what has to be renewed needs the short
// one.
func (b *Binding) interval() time.Duration {
	serves, _ := b.mayServe()
	if serves && b.ObjectsDir == "" && b.StreamsDir == "" {
		return markerInterval
	}
	return bindInterval
}

// bindOnce binds once. An outage of the database or of the objects changes nothing: a node that
// serves goes on, and one that does not know yet waits.
func (b *Binding) bindOnce(ctx context.Context, e *engine.Engine) {
	err := b.bind(ctx, e)
	_, refused := Refused(err) // a store that is read-only says nothing about the storage
	if err != nil && !refused {
		b.binding.Report(ctx, err)
		return
	}
	b.binding.Report(ctx, nil)
	b.setRefusal(err)
}

// setRefusal sets whether the node may serve, wakes those who wait for it, and logs it when that
// has changed.
func (b *Binding) setRefusal(refusal error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.refusal
	if b.known && errorText(before) == errorText(refusal) {
		return
	}
	b.known, b.refusal = true, refusal
	close(b.changed)
	b.changed = make(chan struct{})
	switch {
	case refusal != nil:
		b.Log.Error("this node refuses FetchBox and Images: "+adviceFor(refusal),
			telemetry.ErrorMessage, refusal)
	case before != nil:
		b.Log.Info("this node serves FetchBox and Images: it has the objects and streams of " +
			"its database")
	}
}

// errorText returns the text of an error, by which two refusals are compared.
func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// mayServe reports whether the node is known to be bound; changed is closed when that may have
// changed.
func (b *Binding) mayServe() (may bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known && b.refusal == nil, b.changed
}

// Check fails with ReadOnly where the storage is not that of the database, or another node holds
// it. As long as that is not known nothing is wrong. Health checks and the requests of FetchBox and
// Images call it.
func (b *Binding) Check() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal
}

// Guard returns a handler that serves only while Check finds nothing wrong, and returns its error
// otherwise.
func (b *Binding) Guard(handle httpapi.Handler) httpapi.Handler {
	return func(c *httpapi.Call) error {
		if err := b.Check(); err != nil {
			return err
		}
		return handle(c)
	}
}

// Await waits until the node may serve. It returns false when ctx has ended.
func (b *Binding) Await(ctx context.Context) bool {
	if b == nil {
		return true
	}
	for {
		serves, changed := b.mayServe()
		if serves {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Run does the work while the node may serve, until ctx ends. The context of the work ends when the
// node may not serve any more; the work is started again when it may. Contracts run their handlers
// with it: a job that reads the wrong storage would find its objects missing.
func (b *Binding) Run(ctx context.Context, work func(context.Context)) {
	if b == nil {
		work(ctx)
		return
	}
	for b.Await(ctx) && ctx.Err() == nil {
		within, cancel := context.WithCancel(ctx)
		go func() {
			b.awaitRefusal(within)
			cancel()
		}()
		work(within)
		isOver := within.Err() == nil // the work has ended by itself
		cancel()
		if isOver {
			return
		}
	}
}

// awaitRefusal waits until the node may not serve, or ctx ends.
func (b *Binding) awaitRefusal(ctx context.Context) {
	for {
		serves, changed := b.mayServe()
		if !serves {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Refused reports whether an error is that of Check, and returns its message, which may be shown to
// callers.
func Refused(err error) (msg string, refused bool) {
	var known *job.Error
	isKnown := errors.As(err, &known)
	if isKnown && (known.Op == bindOp || known.Op == holdOp) {
		return known.Msg, true
	}
	return "", false
}
