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

// Name is the contract of the deliveries' jobs in the store.
const Name = "webhook"

// defaultSlots is the number of attempts in flight that a node has unless it is configured. An
// attempt waits for a receiver almost all of its time, so it is far above the number of processors.
const defaultSlots = 64

// clientQueue is the queue of the deliveries to clients. Each subscription of operators has one of
// its own, named by its id.
const clientQueue = "deliveries"

// Doer makes requests to URLs that clients choose: an egress client that follows no redirects.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Vault seals secrets for storage.
type Vault interface {
	Seal(plain []byte) (string, error)
	Open(sealed string) ([]byte, error)
}

// Config holds the settings and dependencies of Webhooks. Log, OnAttempt, StartSpan, Slots and
// Retention are optional.
type Config struct {
	Engine *engine.Engine // has JobType registered
	Vault  Vault
	Client Doer
	// CallbackSecret returns the secret, whsec_…, with which callbacks of a client are signed.
	CallbackSecret func(ctx context.Context, owner string) (string, error)
	// ClientContract is the contract of the jobs that the events for clients are about.
	ClientContract string
	// ContractSecret returns that of the callbacks of the jobs of a contract. Nil: there are none.
	ContractSecret func(ctx context.Context, contract string) (string, error)

	Timeout       time.Duration // of an attempt, from its start to the last byte that is kept
	MaxAttempts   int
	BackoffBase   time.Duration // the delay after the first failed attempt
	BackoffMax    time.Duration // the longest delay, unless a receiver asks for a longer one
	BackoffFactor float64       // from one delay to the next
	Slots         int           // attempts in flight at a time in this process; 0 is 64
	Retention     time.Duration // of deliveries that have finished; 0 keeps them for ever

	Random  io.Reader            // of cryptographic quality
	Elapsed func() time.Duration // a monotonic clock
	Log     *slog.Logger
	// OnAttempt is called after each attempt.
	OnAttempt func(ok bool, took time.Duration)
	// StartSpan starts the span of an attempt; ctx carries the trace of the event.
	StartSpan func(ctx context.Context, attrs ...attribute.KeyValue) (context.Context, trace.Span)
}

// validate names the first member that is missing or out of range. New returns its error; the
// settings have been checked before, so users do not see it.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Vault == nil || c.Client == nil || c.CallbackSecret == nil:
		return errors.New("webhook: Engine, Vault, Client and CallbackSecret are required")
	case c.Random == nil || c.Elapsed == nil:
		return errors.New("webhook: Random and Elapsed are required")
	case c.Timeout <= 0 || c.MaxAttempts <= 0 || c.Slots < 0:
		return errors.New("webhook: Timeout and MaxAttempts must be positive, Slots not negative")
	case c.BackoffBase <= 0 || c.BackoffMax < c.BackoffBase || !(c.BackoffFactor >= 1): // no NaN
		return errors.New("webhook: BackoffBase must be positive, BackoffMax not below it, " +
			"BackoffFactor at least 1")
	}
	return nil
}

// Webhooks stores subscriptions and makes deliveries.
type Webhooks struct {
	Config
	destinations *destinations
	randomMu     sync.Mutex // guards Random
}

// New checks the config and fills in the defaults.
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
	if c.OnAttempt == nil {
		c.OnAttempt = func(bool, time.Duration) {}
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

// JobType describes deliveries to the engine.
func (w *Webhooks) JobType() engine.JobType {
	return engine.JobType{Name: Name, Machine: machine, Graph: true, Retention: w.Retention}
}

// writeMargin is how long reading the records before an attempt and storing its outcome may take. A
// lease is longer than an attempt's time-out by it, so it is also how much later an attempt of a
// node that died is repeated.
const writeMargin = 10 * time.Second

// lease returns the lease of a delivery: it covers a whole attempt, so that only an attempt under a
// store that hangs, or one that was stored under a shorter Timeout, needs heartbeats.
func (w *Webhooks) lease() time.Duration { return w.Timeout + writeMargin }

// readRandom fills b. Random need not be safe for concurrent use.
func (w *Webhooks) readRandom(b []byte) error {
	w.randomMu.Lock()
	defer w.randomMu.Unlock()
	_, err := io.ReadFull(w.Random, b)
	return err
}

// randomFloat returns a number from [0, 1), or 0.5 if Random fails.
func (w *Webhooks) randomFloat() float64 {
	var b [8]byte
	if w.readRandom(b[:]) != nil {
		return 0.5
	}
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

// newID returns a UUID of version 7; such ids sort by the time they were made.
func (w *Webhooks) newID(now time.Time) (string, error) {
	var id [16]byte
	if err := w.readRandom(id[6:]); err != nil {
		return "", err
	}
	return uuids.NewV7(now, id).String(), nil
}

// newRandomID returns a UUID of version 4.
func (w *Webhooks) newRandomID() (string, error) {
	var id [16]byte
	err := w.readRandom(id[:])
	return uuids.New(4, id).String(), err
}
