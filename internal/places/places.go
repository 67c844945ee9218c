// Package places binds the objects and streams of a node to its database. The node that starts
// first writes into the database which they are, as it does with the pepper. A node with others
// would lose what is stored through it, and so does one that runs on a copy of the directory of
// another: such a node refuses to serve what is kept there.
package places

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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

	// The directories of what only this node reaches: its objects and its embedded stream server.
	// Empty where it is an outside service that keeps them.
	ObjectsDir, StreamsDir string
}

// Places are the objects and streams of one node. The methods of nil, for a database that no
// other node can have, find nothing wrong.
type Places struct {
	Config
	binding outage.Loop // until it is known, FetchBox and Images run no jobs
	markers outage.Loop // the regular look at the marker of a node that is bound

	// The loop that binds has these for itself.
	fingerprints map[string]string // of the directories, by what they hold
	boundID      string            // of the objects, once the node was bound

	mu      sync.Mutex
	known   bool          // whether the places are the database's
	refusal error         // why they are not, or that another node holds them
	changed chan struct{} // closed when known or refusal change
}

// New makes places that are not bound yet.
func New(c Config) *Places {
	return &Places{Config: c, changed: make(chan struct{}),
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

// Bind finds out whether the places are the database's, which they become if it has none. Until
// ctx ends it goes on looking: the objects may be away at first, the marker may be deleted, and
// another node may come with a copy of a directory.
func (p *Places) Bind(ctx context.Context, e *engine.Engine) {
	if p == nil {
		return
	}
	p.try(ctx, e)
	go func() {
		for {
			pause := time.NewTimer(p.interval())
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
			p.try(ctx, e)
		}
	}()
}

// interval is how long to wait before the next try.
func (p *Places) interval() time.Duration {
	serves, _ := p.serves()
	if serves && p.ObjectsDir == "" && p.StreamsDir == "" {
		return markerInterval
	}
	return bindInterval
}

// try binds once. What cannot be known now changes nothing.
func (p *Places) try(ctx context.Context, e *engine.Engine) {
	err := p.bind(ctx, e)
	_, refused := Refused(err) // a store that is read-only says nothing about the places
	if err != nil && !refused {
		p.binding.Report(ctx, err)
		return
	}
	p.binding.Report(ctx, nil)
	p.settle(err)
}

// settle notes whether the node may serve, and logs it when that has changed.
func (p *Places) settle(refusal error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.refusal
	if p.known && errorText(before) == errorText(refusal) {
		return
	}
	p.known, p.refusal = true, refusal
	close(p.changed)
	p.changed = make(chan struct{})
	switch {
	case refusal != nil:
		p.Log.Error("this node refuses FetchBox and Images: "+adviceFor(refusal),
			telemetry.ErrorMessage, refusal)
	case before != nil:
		p.Log.Info("this node serves FetchBox and Images: it has the objects and streams of " +
			"its database")
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// serves tells whether the node is known to be bound; changed is closed when that may have changed.
func (p *Places) serves() (is bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known && p.refusal == nil, p.changed
}

// Check fails with ReadOnly where the places are not the database's, or another node holds them. As
// long as that is not known nothing is wrong.
func (p *Places) Check() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal
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

// Await waits until the node may serve. False is that ctx has ended.
func (p *Places) Await(ctx context.Context) bool {
	if p == nil {
		return true
	}
	for {
		serves, changed := p.serves()
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
// node may not serve any more; the work is begun anew when it may again.
func (p *Places) Run(ctx context.Context, work func(context.Context)) {
	if p == nil {
		work(ctx)
		return
	}
	for p.Await(ctx) && ctx.Err() == nil {
		within, cancel := context.WithCancel(ctx)
		go func() {
			p.awaitRefusal(within)
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
func (p *Places) awaitRefusal(ctx context.Context) {
	for {
		serves, changed := p.serves()
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

// Refused tells whether an error is that of Check, which may be shown to callers.
func Refused(err error) (msg string, is bool) {
	var known *job.Error
	isKnown := errors.As(err, &known)
	if isKnown && (known.Op == bindOp || known.Op == holdOp) {
		return known.Msg, true
	}
	return "", false
}
