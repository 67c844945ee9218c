package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/uuids"
)

// Name is that of the contract whose jobs deliveries are.
const Name = "webhook"

const defaultSlots = 64

// queue is the one queue of deliveries.
const queue = "deliveries"

// Doer makes requests to where clients say: an egress client that follows no redirects.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Vault seals secrets for storage.
type Vault interface {
	Seal(plain []byte) (string, error)
	Open(sealed string) ([]byte, error)
}

// Config is what Webhooks are made of. All members but Log, Tried, Span and Retention are needed.
type Config struct {
	Vault  Vault
	Client Doer
	// CallbackSecret returns the secret, whsec_…, with which callbacks of a client are signed.
	CallbackSecret func(ctx context.Context, owner string) (string, error)

	Timeout       time.Duration // of a try, from its start to the last byte that is kept
	MaxTries      int
	BackoffBase   time.Duration // the wait after the first try that failed
	BackoffMax    time.Duration // the longest wait, but for what a receiver asks for
	BackoffFactor float64       // from one wait to the next
	Slots         int           // tries under way at a time in this process; 0 is 64
	Retention     time.Duration // of deliveries that are over; 0 keeps them for ever

	Random  io.Reader            // of cryptographic quality
	Elapsed func() time.Duration // a clock that never jumps
	Log     *slog.Logger
	// OnTry is told of each try that was made.
	OnTry func(ok bool, took time.Duration)
	// StartSpan begins the span of a try; ctx is at the place in the trace that its event came
	// from.
	StartSpan func(ctx context.Context, attrs ...attribute.KeyValue) (context.Context, trace.Span)
}

func (c *Config) validate() error {
	switch {
	case c.Vault == nil || c.Client == nil || c.CallbackSecret == nil:
		return errors.New("webhook: Vault, Client and CallbackSecret are needed")
	case c.Random == nil || c.Elapsed == nil:
		return errors.New("webhook: Random and Elapsed are needed")
	case c.Timeout <= 0 || c.MaxTries <= 0 || c.Slots < 0:
		return errors.New("webhook: Timeout and MaxTries must be positive, Slots not negative")
	case c.BackoffBase <= 0 || c.BackoffMax < c.BackoffBase || !(c.BackoffFactor >= 1):
		return errors.New("webhook: BackoffBase must be positive, BackoffMax not below it, " +
			"BackoffFactor at least 1")
	}
	return nil
}

// Webhooks keeps subscriptions and makes deliveries. Bind gives it its engine before anything else
// is called.
type Webhooks struct {
	Config
	engine       *engine.Engine
	destinations *destinations
	randomMu     sync.Mutex // Random is not made for many
}

// New makes webhooks.
func New(c Config) (*Webhooks, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnTry == nil {
		c.OnTry = func(bool, time.Duration) {}
	}
	if c.StartSpan == nil {
		c.StartSpan = func(ctx context.Context, _ ...attribute.KeyValue) (context.Context,
			trace.Span) {
			return ctx, noop.Span{}
		}
	}
	w := &Webhooks{Config: c}
	w.destinations = newDestinations(c.Slots, c.Elapsed, w.randomFloat)
	return w, nil
}

// Contract is what the engine needs to know of deliveries.
func (w *Webhooks) Contract() engine.Contract {
	return engine.Contract{Name: Name, Machine: machine, Graph: true, Retention: w.Retention}
}

// Bind gives the engine, which has the Contract.
func (w *Webhooks) Bind(e *engine.Engine) { w.engine = e }

// writeMargin is how long what a try came to may take to be written. It is also by how much later
// than its time-out a try of a node that died is made again.
const writeMargin = 10 * time.Second

// lease is how long a try may be silent.
func (w *Webhooks) lease() time.Duration { return w.Timeout + writeMargin }

func (w *Webhooks) readRandom(b []byte) error {
	w.randomMu.Lock()
	defer w.randomMu.Unlock()
	_, err := io.ReadFull(w.Random, b)
	return err
}

// randomFloat returns a number from [0, 1). Where chance fails it is the middle.
func (w *Webhooks) randomFloat() float64 {
	var b [8]byte
	if w.readRandom(b[:]) != nil {
		return 0.5
	}
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

// newID makes a UUID of version 7, so that ids sort by the time they were made.
func (w *Webhooks) newID(now time.Time) (string, error) {
	var id [16]byte
	if err := w.readRandom(id[6:]); err != nil {
		return "", err
	}
	return uuids.NewV7(now, id).String(), nil
}

// newRandomID makes one of version 4.
func (w *Webhooks) newRandomID() (string, error) {
	var id [16]byte
	err := w.readRandom(id[:])
	return uuids.New(4, id).String(), err
}
