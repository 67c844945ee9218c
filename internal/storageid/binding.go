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
	Timer   clock.Timer     // nil is real time

	// ObjectsDir and StreamsDir are the directories of the node's objects and of its embedded
	// stream server, which only this node reaches. They are empty if a service keeps them.
	ObjectsDir, StreamsDir string
}

// Binding compares the storage of one node with the ids in its database. If no other node can have
// the database, a node has a nil Binding, whose methods find nothing wrong.
type Binding struct {
	Config
	binding outage.Loop // reports errors of tryBind
	markers outage.Loop // reports errors of reading the marker while the node is bound

	binds  sync.Mutex     // held for each tryBind, of the loop or of StreamsOpened
	engine *engine.Engine // the engine of Bind

	// Only tryBind uses these.
	fingerprints map[string]string // of the directories, by their paths
	boundID      string            // the id of the objects with which the node was bound last

	mu      sync.Mutex
	known   bool          // whether the comparison was made at least once
	refusal error         // why the node may not serve; nil if it may, or if that is not known
	changed chan struct{} // closed when known or refusal changes
}

// New makes a Binding that has not read the database yet.
func New(c Config) *Binding {
	return &Binding{Config: c, changed: make(chan struct{}),
		binding: outage.Loop{Log: c.Log, Name: "binding of objects and streams"},
		markers: outage.Loop{Log: c.Log, Name: "marker of the objects"}}
}

const (
	bindTimeout = 5 * time.Second // bounds each of the two steps of a try
	// bindInterval is the time between two tries, and between two renewals of a holder. They are at
	// ticks, at which the node writes its record too, see clock.UntilTick.
	bindInterval = 5 * time.Second
	// markerInterval is the time between two tries of a bound node that has no holder to renew. It
	// only checks its marker.
	markerInterval = time.Minute
)

// Bind compares the storage with the ids in the database, and writes them if it has none. Until ctx
// ends it repeats that in the background, because the objects may be unavailable at first, the
// marker may be deleted, and another node may start on a copy of a directory. It is called once,
// when the engine runs.
func (b *Binding) Bind(ctx context.Context, e *engine.Engine) {
	if b == nil {
		return
	}
	b.binds.Lock()
	b.engine = e
	b.binds.Unlock()
	b.bindOnce(ctx, e)
	go func() {
		for b.Timer.Wait(ctx, b.pause()) && ctx.Err() == nil {
			b.alignStreams(ctx)
			b.bindOnce(ctx, e)
		}
	}()
}

// alignStreams repairs the ids of streams that the stream server has lost. A node that serves makes
// the streams again with their ids. If another node has started meanwhile and has made them, it
// gives the ids to those streams. A node that does not serve yet only loads the ids. Whatever fails
// is tried again next time, and an outage of the streams is reported where they are used.
func (b *Binding) alignStreams(ctx context.Context) {
	if b.Streams == nil || !b.Streams.IsOpen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	align := b.Streams.LoadIDs
	if serves, _ := b.mayServe(); serves {
		align = b.Streams.KeepIDs
	}
	_ = align(ctx)
}

// StreamsOpened binds streams that were opened for their first message. If it returns an error, the
// message must not be published.
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
	return b.tryBind(ctx, e)
}

// pause returns the time until the next try. It is long if the node serves and has no holder to
// renew.
func (b *Binding) pause() time.Duration {
	serves, _ := b.mayServe()
	if serves && b.ObjectsDir == "" && b.StreamsDir == "" {
		return markerInterval
	}
	return clock.UntilTick(bindInterval)
}

// bindOnce binds once. Usually streams are opened for their first message. But if the database is
// bound to streams already, this node's are other streams or have lost their files. Then bindOnce
// opens them at once, to compare their ids.
func (b *Binding) bindOnce(ctx context.Context, e *engine.Engine) {
	err := b.tryBind(ctx, e)
	if !errors.Is(err, errStreamsWait) {
		return
	}
	if err := b.Streams.Start(ctx); err != nil {
		b.binding.Report(ctx, err)
		return
	}
	_ = b.tryBind(ctx, e) // it reports its error
}

// tryBind binds once, and returns why the node may not serve, or why that is not known. An outage
// of the database or of the objects changes nothing: a node that serves goes on, and other nodes
// wait.
func (b *Binding) tryBind(ctx context.Context, e *engine.Engine) error {
	b.binds.Lock()
	defer b.binds.Unlock()
	err := b.bind(ctx, e)
	if errors.Is(err, errStreamsWait) {
		return err
	}
	_, refused := Refused(err) // other errors, such as a read-only store, are not about the storage
	if err != nil && !refused {
		b.binding.Report(ctx, err)
		return err
	}
	b.binding.Report(ctx, nil)
	b.setRefusal(err)
	return err
}

// setRefusal sets whether the node may serve: it may if refusal is nil. If that has changed,
// setRefusal logs it and wakes the callers that wait for it.
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

// errorText returns the text of an error or "". Two refusals are compared by their texts.
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

// Check returns an error of the kind ReadOnly if the storage is not that of the database, or if
// another node holds it. As long as that is not known, it returns nil. Health checks and the
// requests of FetchBox and Images call it.
func (b *Binding) Check() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal
}

// Guard returns a handler that calls handle only if Check returns no error.
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
// node may not serve any longer, and the work is started again when it may. Contracts run their
// handlers with Run, because a job that reads the wrong storage does not find its objects.
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
		isFinished := within.Err() == nil // the work has ended by itself
		cancel()
		if isFinished {
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

// Refused reports whether an error is one of Check. If it is, Refused returns its message, which
// may be shown to callers.
func Refused(err error) (msg string, refused bool) {
	var known *job.Error
	isKnown := errors.As(err, &known)
	if isKnown && (known.Op == bindOp || known.Op == lockOp) {
		return known.Msg, true
	}
	return "", false
}
