// Package storageid binds the storage of a node, its objects and its streams, to its database. All
// nodes of one database must use the same storage: an object or message that was stored through a
// node with another one would be lost for the others. So each storage has an id, and the database
// keeps the ids of those that it was bound to:
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

	binds  sync.Mutex     // held for one look, by the loop or by StreamsOpened
	engine *engine.Engine // of Bind

	// Only a look uses these.
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
	b.binds.Lock()
	b.engine = e
	b.binds.Unlock()
	b.bindOnce(ctx, e)
	go func() {
		for clock.Sleep(ctx, b.interval()) {
			b.alignStreams(ctx)
			b.bindOnce(ctx, e)
		}
	}()
}

// alignStreams looks at the ids of the streams, which may have been lost: a node that serves makes
// them again with their ids, and gives these to streams that a node which has started meanwhile has
// made; that one loads them. What fails is tried at the next look, and an outage of the streams is
// reported where they are used.
func (b *Binding) alignStreams(ctx context.Context) {
	if b.Streams == nil || !b.Streams.IsOpen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	look := b.Streams.LoadIDs
	if serves, _ := b.mayServe(); serves {
		look = b.Streams.KeepIDs
	}
	_ = look(ctx)
}

// StreamsOpened binds streams that were opened for their first message, before it is published, and
// returns why it may not be.
func (b *Binding) StreamsOpened(ctx context.Context) error {
	if b == nil {
		return nil
	}
	b.binds.Lock()
	e := b.engine
	b.binds.Unlock()
	if e == nil {
		return &job.Error{Kind: job.Unavailable, Op: "storageid.start",
			Msg: "the node is not started yet"}
	}
	return b.look(ctx, e)
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

// bindOnce binds once. Streams that wait for their first message are opened where the database is
// bound to some: these are others, or have lost their files.
func (b *Binding) bindOnce(ctx context.Context, e *engine.Engine) {
	err := b.look(ctx, e)
	if !errors.Is(err, errStreamsWait) {
		return
	}
	if err := b.Streams.Start(ctx); err != nil {
		b.binding.Report(ctx, err)
		return
	}
	_ = b.look(ctx, e) // which reports what is wrong
}

// look binds once, and returns why the node may not serve or does not know. An outage of the
// database or of the objects changes nothing: a node that serves goes on, and one that does not
// know yet waits.
func (b *Binding) look(ctx context.Context, e *engine.Engine) error {
	b.binds.Lock()
	defer b.binds.Unlock()
	err := b.bind(ctx, e)
	if errors.Is(err, errStreamsWait) {
		return err
	}
	_, refused := Refused(err) // a store that is read-only says nothing about the storage
	if err != nil && !refused {
		b.binding.Report(ctx, err)
		return err
	}
	b.binding.Report(ctx, nil)
	b.setRefusal(err)
	return err
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

// Refused reports whether an error comes from Check, and returns its message, which may be shown to
// callers.
func Refused(err error) (msg string, refused bool) {
	var known *job.Error
	isKnown := errors.As(err, &known)
	if isKnown && (known.Op == bindOp || known.Op == holdOp) {
		return known.Msg, true
	}
	return "", false
}
