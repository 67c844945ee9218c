package admin

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Where the operator's token is:
//
//	the setting operator.token   there alone: no file is read, and a rotation is refused
//	a store of this node alone   in the file, which the first start writes
//	a store that nodes share     in the store, sealed under the pepper: the first node puts there
//	                             what its file has, and each node copies it to its own file
//
// While a node does not know the token it answers with 503: a 401 would say that a token is wrong
// which may be right. A rotation goes through these steps, so that a crash at any of them leaves
// one of the two tokens in force:
//
//	prepareToken   the new token is on stable storage beside the file
//	transaction    the entry of the audit and, on a store that nodes share, the sealed token
//	commit         a rename puts it in the place of the file
//	operator       it is in force here; on other nodes with their next Engine.Refresh

// The token that all nodes of a store share is one record, sealed under the pepper.
const (
	tokenKind = "admin.token"
	tokenKey  = "operator"
)

// purposeBinding is what the key that binds sessions to tokens is derived from the pepper for. It
// must never change: all sessions would end.
const purposeBinding = "millrace operator session"

// token is one of the two tokens, ready for comparisons.
type token struct {
	kind   kind
	text   string
	digest [sha256.Size]byte
	// binding stands for the token in the sessions and codes that were made under it. It is an
	// HMAC under the pepper, so a copy of the store does not help to guess a weak token.
	binding string
}

// tokens are the tokens that are in force on this node.
type tokens struct {
	config     *Config
	log        *slog.Logger
	vault      *account.Vault
	bindingKey []byte
	proofKey   []byte // of the answers to challenges
	outage     outage.Loop

	read     *token                // nil: there is none
	operator atomic.Pointer[token] // nil while it is not known
	refused  atomic.Bool           // the store has the token sealed under another pepper

	compared atomic.Pointer[string] // as it was in the store when refresh last succeeded
	changed  chan struct{}          // has a value when refresh is to be called

	mu       sync.Mutex // of changes of operator and of the file
	sealed   string     // as it was read from the store last
	fileText string     // what the file holds, as far as this node knows
}

// newTokens prepares the tokens of the settings. That of the operator is not known yet where no
// setting gives it.
func newTokens(c *Config) (*tokens, error) {
	vault, err := account.NewVault(c.Pepper)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, c.Pepper, nil, purposeBinding, sha256.Size)
	if err != nil {
		return nil, err
	}
	proofKey, err := account.ProofKey(c.Pepper)
	if err != nil {
		return nil, err
	}
	config := *c
	t := &tokens{config: &config, log: c.Log, vault: vault, bindingKey: key, proofKey: proofKey,
		outage:  outage.Loop{Log: c.Log, Name: "the operator's token"},
		changed: make(chan struct{}, 1)}
	if !c.ReadToken.Empty() {
		t.read = t.newToken(readKind, c.ReadToken.Reveal())
	}
	if !c.Token.Empty() {
		t.operator.Store(t.newToken(operatorKind, c.Token.Reveal()))
	}
	if t.isOfStore() {
		c.Engine.OnRefresh(t.compare)
	}
	return t, nil
}

// newToken prepares a token for comparisons.
func (t *tokens) newToken(k kind, text string) *token {
	mac := hmac.New(sha256.New, t.bindingKey)
	mac.Write([]byte(string(k) + " " + text))
	return &token{kind: k, text: text, digest: sha256.Sum256([]byte(text)),
		binding: hex.EncodeToString(mac.Sum(nil))}
}

// fromSetting reports whether the settings give the operator's token.
func (t *tokens) fromSetting() bool { return !t.config.Token.Empty() }

// isOfStore reports whether the token is that of the store.
func (t *tokens) isOfStore() bool { return t.config.Shared && !t.fromSetting() }

// These answer requests while this node does not know the operator's token: the store has not
// answered yet, or the token in it was sealed under another pepper.
var (
	errTokenUnknown = &httpapi.CodedError{Code: codeUnavailable,
		Detail: "this node does not know the operator's token yet, as its store does not answer"}
	errTokenSealed = &httpapi.CodedError{Code: codeUnavailable,
		Detail: "this node cannot read the operator's token, which its store has sealed under the " +
			"pepper of another node: " + pepperHint}
)

// pepperHint says what ends that a node has another pepper than the store.
const pepperHint = "start it again with the pepper file of the node that was started first on this " +
	"store (secrets.pepper_file, else pepper in its data_dir), or set operator.token on all nodes"

// callerOf returns the caller who presents a token. Digests are compared in constant time, and
// always both, so the time says nothing about a token.
func (t *tokens) callerOf(text string) (*caller, error) {
	given := sha256.Sum256([]byte(text))
	operator := t.operator.Load()
	isOperator := operator.matches(&given)
	isRead := t.read.matches(&given)
	switch {
	case isOperator:
		return &caller{kind: operatorKind}, nil
	case isRead:
		return &caller{kind: readKind}, nil
	case operator == nil:
		return nil, t.errUnknown()
	}
	return nil, errUnauthorized
}

// errUnknown says why this node does not know the operator's token.
func (t *tokens) errUnknown() error {
	if t.refused.Load() {
		return errTokenSealed
	}
	return errTokenUnknown
}

// matches reports whether a token has this digest; nil matches no token.
func (k *token) matches(given *[sha256.Size]byte) bool {
	return k != nil && subtle.ConstantTimeCompare(given[:], k.digest[:]) == 1
}

// ofKind returns the token in force of a kind; nil if there is none.
func (t *tokens) ofKind(k kind) *token {
	if k == readKind {
		return t.read
	}
	return t.operator.Load()
}

// prepare makes the operator's token known, and reports whether it made a new one. On a store that
// is shared, that of the store counts; the first node gives it the token of its file.
func (t *tokens) prepare(ctx context.Context) (made bool, err error) {
	if t.fromSetting() {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	text, err := ReadToken(t.config.TokenFile)
	if err != nil {
		return false, fmt.Errorf("the operator's token cannot be read: %w", err)
	}
	t.fileText = text
	if t.config.Shared {
		t.outage.Report(ctx, t.refresh(ctx))
		return false, nil
	}
	if text == "" {
		made, text = true, rand.Text()
		if err := writeToken(t.config.TokenFile, text); err != nil {
			return false, fmt.Errorf("the operator's token cannot be stored: %w", err)
		}
	}
	t.fileText = text
	t.operator.Store(t.newToken(operatorKind, text))
	return made, nil
}

// compare has run refresh the token where the store has another one than refresh found last.
func (t *tokens) compare(r engine.RecordReader) {
	sealed, err := readSealed(r)
	if err != nil {
		t.signal() // refresh reports it
		return
	}
	if known := t.compared.Load(); known == nil || *known != sealed {
		t.signal()
	}
}

// signal has run refresh the token.
func (t *tokens) signal() {
	select {
	case t.changed <- struct{}{}:
	default: // it was signaled already
	}
}

// run keeps the token that of the store, until ctx ends. Only a store that is shared has one.
func (t *tokens) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-t.changed:
			t.outage.Until(ctx, tokenRetryPause, t.refreshLocked)
		case <-ctx.Done():
		}
	}
}

// refreshLocked is refresh for a caller that does not hold mu.
func (t *tokens) refreshLocked(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refresh(ctx)
}

// tokenBody is the body of the record.
type tokenBody struct {
	Sealed string `json:"sealed"`
}

// refresh takes the token of the store over, and writes it to the file where that has another one.
// A store without a token gets one. The caller holds mu.
func (t *tokens) refresh(ctx context.Context) error {
	sealed, err := t.readToken(ctx)
	if err != nil {
		return err
	}
	if err := t.takeOver(sealed); err != nil {
		return err
	}
	t.compared.Store(&sealed)
	return nil
}

// readToken reads the sealed token of the store, which gets one if it has none.
func (t *tokens) readToken(ctx context.Context) (sealed string, err error) {
	read := func(r engine.RecordReader) (err error) {
		sealed, err = readSealed(r)
		return err
	}
	if err := t.config.Engine.ViewRecords(ctx, read); err != nil || sealed != "" {
		return sealed, err
	}
	err = t.storeToken(ctx, &sealed)
	return sealed, err
}

// takeOver makes a sealed token that of this node.
func (t *tokens) takeOver(sealed string) error {
	if sealed == t.sealed && t.operator.Load() != nil {
		return t.copyToFile()
	}
	text, err := t.vault.Open(sealed)
	if err != nil {
		t.refuse(err)
		return nil
	}
	t.sealed = sealed
	t.refused.Store(false)
	t.operator.Store(t.newToken(operatorKind, string(text)))
	return t.copyToFile()
}

// storeToken gives the store a token, that of the file or a new one, unless another node was
// faster.
func (t *tokens) storeToken(ctx context.Context, sealed *string) error {
	text := t.fileText
	if text == "" {
		text = rand.Text()
	}
	own, err := t.vault.Seal([]byte(text))
	if err != nil {
		return err
	}
	return t.config.Engine.ChangeRecords(ctx, tokenKind, func(w engine.RecordWriter) error {
		*sealed, err = readSealed(w)
		if err != nil || *sealed != "" {
			return err
		}
		*sealed = own
		return putBody(w, job.Record{Kind: tokenKind, Key: tokenKey}, tokenBody{own})
	})
}

// refuse logs, once, that the store has the token sealed under another pepper. A token that this
// node has known before does not count any more.
func (t *tokens) refuse(err error) {
	t.operator.Store(nil)
	if t.refused.Swap(true) {
		return
	}
	t.log.Error("this node answers requests of operators with 503: "+pepperHint,
		telemetry.ErrorMessage, err)
}

// copyToFile writes the token to the file, where `millrace operator token` reads it.
func (t *tokens) copyToFile() error {
	text := t.operator.Load().text
	if text == t.fileText {
		return nil
	}
	if err := writeToken(t.config.TokenFile, text); err != nil {
		return fmt.Errorf("the operator's token cannot be stored: %w", err)
	}
	t.fileText = text
	return nil
}

// readSealed returns the sealed token of the store, "" if there is none.
func readSealed(r engine.RecordReader) (string, error) {
	body, err := readBody[tokenBody](r, tokenKind, tokenKey)
	if err != nil || body == nil {
		return "", err
	}
	return body.Sealed, nil
}

// errTokenOfSetting refuses a rotation where it would have no effect.
var errTokenOfSetting = &httpapi.CodedError{Code: codeConflict,
	Detail: "the setting operator.token gives the token: change it there, on every node"}

// rotateToken is POST /admin/v1/token/rotate: a new token takes the place of the present one, which
// ends all sessions of operators (AD-002, G-AD-02). The answer shows the new one.
func (a *API) rotateToken(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	text, err := a.tokens.rotate(c.Context(), func(w engine.RecordWriter) error {
		return a.record(w, c, nil, nil)
	})
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	o.Text("token", text)
	sendObject(c, 200, &o)
	return nil
}

// rotate replaces the operator's token. The new one is on stable storage before the transaction
// that records the rotation and, on a store that is shared, brings it to the other nodes; it is in
// force on this node afterwards.
func (t *tokens) rotate(ctx context.Context,
	record func(engine.RecordWriter) error) (string, error) {
	if t.fromSetting() {
		return "", errTokenOfSetting
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	text := rand.Text()
	sealed, err := t.vault.Seal([]byte(text))
	if err != nil {
		return "", err
	}
	prepared, err := prepareToken(t.config.TokenFile, text)
	if err != nil {
		return "", errTokenFile(err)
	}
	err = t.config.Engine.ChangeRecords(ctx, tokenKind, func(w engine.RecordWriter) error {
		if t.config.Shared {
			r := job.Record{Kind: tokenKind, Key: tokenKey}
			if err := putBody(w, r, tokenBody{sealed}); err != nil {
				return err
			}
		}
		return record(w)
	})
	if err != nil {
		prepared.discard()
		return "", err
	}
	if err := t.commit(prepared, text); err != nil {
		return "", err
	}
	t.sealed = sealed
	t.compared.Store(&sealed)
	t.operator.Store(t.newToken(operatorKind, text))
	return text, nil
}

// commit puts a new token into the file. Where the store has it too, a file that cannot be written
// now is written by the next refresh.
func (t *tokens) commit(prepared preparedToken, text string) error {
	if err := prepared.commit(); err != nil {
		if t.config.Shared {
			t.signal()
			return nil
		}
		return errTokenFile(err)
	}
	t.fileText = text
	return nil
}

// errTokenFile is the error of a token that cannot be written to its file.
func errTokenFile(err error) error {
	return &job.Error{Kind: job.Unavailable, Op: "admin.token",
		Msg: "the operator's token cannot be stored in the data directory", Err: err}
}

// Token returns the operator's token in force; "" while it is not known.
func (a *API) Token() string {
	if t := a.tokens.operator.Load(); t != nil {
		return t.text
	}
	return ""
}
