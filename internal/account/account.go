package account

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Kinds of records.
const (
	clientKind      = "account.client"
	keyKind         = "account.key"
	idempotencyKind = "account.request" // the outcome of a request with an Idempotency-Key
	usageKind       = "account.usage"   // how much of a window is leased
	checkKind       = "account.check"   // the pepper's check value
)

// Config holds the settings and dependencies of Accounts.
type Config struct {
	Engine *engine.Engine
	Pepper []byte // the same on every node, see LoadPepper

	KeyLifetime      time.Duration // 0: keys do not expire (G-FR-27)
	RevokedRetention time.Duration // 0: revoked keys are kept for ever

	RatePerMinute      int // requests of a client
	QuotaPerDay        int // requests of a client in a UTC day; 0: no limit
	AnonymousPerMinute int // requests without a valid key of an address (G-FR-16)

	Random  io.Reader            // of cryptographic quality; nil: the system's
	Log     *slog.Logger         // nil: none
	Elapsed func() time.Duration // a monotonic clock

	// RequestID returns the request id for log lines; nil: they have none.
	RequestID func(context.Context) string
}

// validate names the first member that is missing or out of range. The settings behind the members
// have ranges of their own, so a user does not see these errors.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Elapsed == nil:
		return errors.New("account: Engine and Elapsed are required")
	case c.KeyLifetime < 0 || c.RevokedRetention < 0:
		return errors.New("account: KeyLifetime and RevokedRetention must not be below 0")
	case c.RatePerMinute < 1 || c.AnonymousPerMinute < 1:
		return errors.New("account: RatePerMinute and AnonymousPerMinute must be 1 or more")
	case c.QuotaPerDay < 0:
		return errors.New("account: QuotaPerDay must not be below 0")
	}
	return nil
}

// Accounts manages the clients in a store. Its methods are safe for concurrent use. Errors are
// *Denied, ErrForbidden or *job.Error: NotFound, Conflict, and those of the store.
type Accounts struct {
	Config

	vault              *Vault
	idempotencyHashKey []byte // of hashIdempotencyKey
	pepperCheck        []byte // a value by which a store recognises the pepper
	digesters          sync.Pool
	keys               *keyCache
	callbacks          *callbackCache
	clients            *limiter
	addresses          *limiter
}

// New checks the config and derives the keys that the pepper protects. It keeps no copy of the
// pepper itself. The keys in the store are not looked at: Bind does that, when a node starts.
func New(c Config) (*Accounts, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	vault, err := NewVault(c.Pepper)
	if err != nil {
		return nil, err
	}
	tokens, _ := derive(c.Pepper, purposeTokens) // NewVault has checked the pepper's length
	names, _ := derive(c.Pepper, purposeIdempotencyKeys)
	check, _ := derive(c.Pepper, purposePepperCheck)
	c.Pepper = nil
	a := &Accounts{
		Config:             c,
		vault:              vault,
		idempotencyHashKey: names,
		pepperCheck:        check,
		keys:               newKeyCache(c.Elapsed),
		callbacks:          &callbackCache{},
	}
	a.digesters.New = func() any { return &digester{Hash: hmac.New(sha256.New, tokens)} }
	a.clients = newLimiter(a, clientPrefix, maxClientBuckets,
		Limits{RatePerMinute: c.RatePerMinute, QuotaPerDay: c.QuotaPerDay})
	a.addresses = newLimiter(a, addressPrefix, maxAddressBuckets,
		Limits{RatePerMinute: c.AnonymousPerMinute})
	return a, nil
}

// digester computes digests without allocations: Authenticate runs once for every request. It is
// pooled, as a hash is not safe for concurrent use.
type digester struct {
	hash.Hash
	text [tokenLen]byte
	sum  digest
}

// digest is the HMAC-SHA-256 of an API key under a key that is derived from the pepper.
type digest [sha256.Size]byte

// digest returns the HMAC under which a key is stored. The token must have passed parseToken.
func (a *Accounts) digest(token string) digest {
	d := a.digesters.Get().(*digester)
	defer a.digesters.Put(d)
	d.Reset()
	d.Write(d.text[:copy(d.text[:], token)])
	d.Sum(d.sum[:0])
	clear(d.text[:])
	return d.sum
}

// hashIdempotencyKey returns the name under which an Idempotency-Key is stored. Callers choose its
// text and length, and may put secrets into it. So the store holds an HMAC, which is short and says
// nothing about the text.
func (a *Accounts) hashIdempotencyKey(idempotencyKey string) string {
	mac := hmac.New(sha256.New, a.idempotencyHashKey)
	io.WriteString(mac, idempotencyKey)
	return fmt.Sprintf("%x", mac.Sum(nil))
}

// once identifies a request with an Idempotency-Key, which is remembered under a name.
func (a *Accounts) once(clientID, name, digest string) *engine.IdempotencyRecord {
	return &engine.IdempotencyRecord{Kind: idempotencyKind, Key: name,
		Owner: clientID, Digest: digest, Window: engine.DefaultIdempotencyWindow}
}

// ErrPepper reports that the keys in the store were made under another pepper, so that none of them
// would be accepted.
var ErrPepper = errors.New("the pepper is not the one that the API keys in the store were made " +
	"under: every node needs the same pepper file, and a lost one must be restored from a backup")

// Bind binds a store without keys to this pepper, and returns ErrPepper if the store is bound to
// another one. It must be called when a node starts, before a key is made. A store that is bound is
// only read.
func (a *Accounts) Bind(ctx context.Context) error {
	bound := false
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
		bound, err = a.checkPepper(r)
		return err
	})
	if err != nil || bound {
		return err
	}
	return a.Engine.ChangeRecords(ctx, checkKind, func(w engine.RecordWriter) error {
		bound, err := a.checkPepper(w)
		if err != nil || bound {
			return err
		}
		return w.UpsertRecords(job.Record{Kind: checkKind, Key: "pepper", Body: a.pepperCheck})
	})
}

// Check returns ErrPepper if the store is bound to another pepper. It changes nothing: a store that
// is not bound has no keys and accepts any pepper.
func (a *Accounts) Check(ctx context.Context) error {
	return a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		_, err := a.checkPepper(r)
		return err
	})
}

// checkPepper reports whether the store is bound to a pepper, and returns ErrPepper if that is
// another one.
func (a *Accounts) checkPepper(r engine.RecordReader) (bound bool, err error) {
	record, err := r.Record(checkKind, "pepper")
	if err != nil || record == nil {
		return false, err
	}
	if !hmac.Equal(record.Body, a.pepperCheck) {
		return true, ErrPepper
	}
	return true, nil
}

// Reason says why a key was refused.
type Reason string

// Reasons.
const (
	Missing   Reason = "missing"   // the request has no key
	Malformed Reason = "malformed" // the text is not a key, or mistyped
	Unknown   Reason = "unknown"   // the key does not exist
	Expired   Reason = "expired"   // the key has expired; it can be renewed
	Disabled  Reason = "disabled"  // the key was revoked or replaced
)

// Denied is the error of a request without a valid key.
type Denied struct {
	Reason   Reason
	ClientID string // empty if unknown
	KeyID    string // empty if unknown
}

// Error returns a text without any part of the key that was presented.
func (d *Denied) Error() string {
	return "account: access denied: the API key is " + string(d.Reason)
}

// ErrForbidden is the error of a caller with a valid key.
var ErrForbidden = errors.New("account: this belongs to another client")

// errNotFound is the error for something that does not exist.
func errNotFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: "account", Msg: "there is no such " + what}
}

// conflict is the error of a change that the state of the client does not permit.
func conflict(msg string) error {
	return &job.Error{Kind: job.Conflict, Op: "account", Msg: msg}
}

// errCanceled returns the error of a caller whose context has ended. A deadline is Unavailable, as
// the store may have been too slow; a caller that left is Aborted.
func errCanceled(ctx context.Context) error {
	kind := job.Aborted
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = job.Unavailable
	}
	return &job.Error{Kind: kind, Op: "account", Err: context.Cause(ctx)}
}

// storeNow returns the transaction's time in the precision that every store keeps.
func storeNow(r engine.RecordReader) time.Time { return r.Now().UTC().Truncate(time.Microsecond) }

// readRecord loads a record and decodes its body. It returns nil if there is none.
func readRecord[T any](r engine.RecordReader, kind, key string) (*job.Record, *T, error) {
	record, err := r.Record(kind, key)
	if err != nil || record == nil {
		return nil, nil, err
	}
	body := new(T)
	return record, body, decodeRecord(record, body)
}

// decodeRecord decodes the body of a record. A body that cannot be read is a defect or damaged
// data, and its error has no kind that a retry would help.
func decodeRecord(record *job.Record, body any) error {
	if err := json.Unmarshal(record.Body, body); err != nil {
		return &job.Error{Op: "account.read", Msg: "a stored record cannot be read",
			Err: fmt.Errorf("%s: %w", record.Kind, err)}
	}
	return nil
}

// putRecord stores a record with a body.
func putRecord(w engine.RecordWriter, r job.Record, body any) error {
	var err error
	if r.Body, err = json.Marshal(body); err != nil {
		return err
	}
	return w.UpsertRecords(r)
}
