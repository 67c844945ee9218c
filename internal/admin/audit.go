package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Entries are records, which the store lists by owner and key. Their key begins with the time
// counted backwards, so the newest comes first. The same entry is stored under three kinds: all
// entries, those of a target and those of an action, so that each filter alone reads only what it
// shows. They expire, and maintenance deletes them, after AuditRetention.
const (
	auditKind         = "admin.audit"
	auditByTargetKind = "admin.audit.target"
	auditByActionKind = "admin.audit.action"
)

// Entry is an entry of the audit (AD-006).
type Entry struct {
	At          time.Time       `json:"at"`
	Actor       string          `json:"actor"`
	Action      string          `json:"action"`
	Target      string          `json:"target"`
	Before      json.RawMessage `json:"before,omitempty"` // nil is null
	After       json.RawMessage `json:"after,omitempty"`
	RequestID   string          `json:"request_id"` // empty for a command without a server
	Remote      string          `json:"remote"`
	RefusalCode string          `json:"refused,omitempty"` // empty for what was done
}

// newEntry begins the entry of a call.
func newEntry(c *httpapi.Call, r *route) Entry {
	return Entry{Actor: callerOf(c).actor(), Action: r.auditedAction(), Target: r.target(c),
		RequestID: c.RequestID(), Remote: remoteOf(c.Request)}
}

// record writes the entry of a change in the transaction of the change. before and after are what
// was changed, encoded as JSON; nil is null.
func (a *API) record(w engine.RecordWriter, c *httpapi.Call, before, after any) error {
	e := newEntry(c, a.routeOf(c))
	var err error
	if e.Before, err = encodeState(before); err != nil {
		return err
	}
	if e.After, err = encodeState(after); err != nil {
		return err
	}
	return a.audit.write(w, e)
}

// RecordCommand writes the entry of a change that a command makes on the store itself, without a
// server, in the transaction of the change. Its caller has the database, as only an operator has.
func RecordCommand(w engine.RecordWriter, retention time.Duration, action, target string) error {
	l := auditLog{retention: retention}
	return l.write(w, Entry{Actor: string(operatorKind), Action: action, Target: target})
}

// encodeState encodes a state of what was changed.
func encodeState(state any) (json.RawMessage, error) {
	if state == nil {
		return nil, nil
	}
	return json.Marshal(state)
}

// recordRefusal writes an entry about a change that was refused. The refusal stands also where the
// entry cannot be written: then the log has it alone.
func (a *API) recordRefusal(c *httpapi.Call, r *route, code string) {
	e := newEntry(c, r)
	e.RefusalCode = code
	err := a.Engine.ChangeRecords(c.Context(), auditKind, func(w engine.RecordWriter) error {
		return a.audit.write(w, e)
	})
	if err != nil {
		a.Log.Log(context.WithoutCancel(c.Context()), outage.Level(slog.LevelWarn, err),
			"a refused change is not in the audit", telemetry.RequestID, e.RequestID,
			"actor", e.Actor, "action", e.Action, telemetry.ErrorMessage, err)
	}
}

// auditLog writes entries.
type auditLog struct {
	retention time.Duration
	written   atomic.Uint32 // entries of this process
}

// write stores an entry under its three kinds, at the time of the transaction.
func (l *auditLog) write(w engine.RecordWriter, e Entry) error {
	e.At = w.Now().UTC().Truncate(time.Microsecond)
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r := job.Record{Key: l.newKey(e.At), Body: body, ExpiresAt: w.Now().Add(l.retention)}
	all, byTarget, byAction := r, r, r
	all.Kind = auditKind
	byTarget.Kind, byTarget.Owner = auditByTargetKind, ownerOf(e.Target)
	byAction.Kind, byAction.Owner = auditByActionKind, ownerOf(e.Action)
	return w.UpsertRecords(all, byTarget, byAction)
}

// ownerOf returns the owner under which the entries of a target or action are stored. It is a
// digest because the name of a queue may be longer than an owner.
func ownerOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// keyDigits is the length of a key: 16 for the time, 8 for the number of the entry on its node and
// 8 random ones. They are hexadecimal, which every database sorts in the same order.
const keyDigits = 32

// keyTime returns how keys of a time begin: later times sort first.
func keyTime(at time.Time) string {
	return fmt.Sprintf("%016x", uint64(math.MaxInt64-at.UnixMicro()))
}

// newKey makes the key of an entry. If entries have the same time, the number keeps those of one
// process in their order, and the random digits make those of several processes differ.
func (l *auditLog) newKey(at time.Time) string {
	var end [4]byte
	rand.Read(end[:]) // never fails
	return fmt.Sprintf("%s%08x%x", keyTime(at), math.MaxUint32-l.written.Add(1), end)
}

// auditCursor is the cursor of the audit: the key of an entry.
var auditCursor = httpapi.Named("audit", httpapi.Cursor[string]{
	Format: func(key string) string { return key },
	Parse: func(key string) (string, bool) {
		raw, err := hex.DecodeString(key)
		if err != nil {
			return "", false
		}
		return key, len(raw) == keyDigits/2 && hex.EncodeToString(raw) == key
	},
})

var auditPages = newPages(auditCursor)

// auditFilter selects entries. Empty members select all.
type auditFilter struct {
	action, target string
	actor          string    // or the name that comes behind its kind
	from           time.Time // inclusive
	to             time.Time // exclusive
}

// The bounds of one page of the audit: how many entries are read at once, and how many are searched
// through for those that match both filters.
const (
	auditBatch     = 500
	maxAuditSearch = 10_000
)

// AuditPage is a page of the audit.
type AuditPage struct {
	Entries []Entry
	Next    string // the cursor of the next page; empty: there is none
	// SearchedTo is set where the search ended before the page was full.
	SearchedTo time.Time
}

// listAudit is GET /admin/v1/audit: the newest entries first.
func (a *API) listAudit(c *httpapi.Call) error {
	page, err := a.Audit(c)
	if err != nil {
		return err
	}
	o := newList(len(page.Entries), page.Next, func(i int, o *strictjson.Object) {
		page.Entries[i].write(o)
	})
	o.Time("searched_to", page.SearchedTo)
	sendObject(c, 200, &o)
	return nil
}

// Audit returns the page of the audit that the query of a call asks for.
func (a *API) Audit(c *httpapi.Call) (page AuditPage, err error) {
	var f auditFilter
	err = firstError(readText(c, "action", &f.action), readText(c, "target", &f.target),
		readText(c, "actor", &f.actor),
		readRange(c, "from", &f.from, "to", &f.to))
	if err != nil {
		return page, err
	}
	limit, after, err := auditPages.Read(c)
	if err != nil {
		return page, err
	}
	err = a.Engine.ViewRecords(c.Context(), func(r engine.RecordReader) (err error) {
		page, err = f.read(r, after, limit)
		return err
	})
	shown := a.disclosureTo(c)
	for i := range page.Entries {
		shown.redactEntry(&page.Entries[i])
	}
	if page.Next != "" {
		page.Next = auditCursor.Format(page.Next)
	}
	return page, err
}

// read reads a page, whose Next is the key of its last entry. It ends when the page is full, the
// entries are too old or it has searched through maxAuditSearch of them.
func (f *auditFilter) read(r engine.RecordReader, after string,
	limit int) (p AuditPage, err error) {
	kind, owner := f.index()
	if !f.to.IsZero() {
		after = max(after, keyTime(f.to)+"g") // behind every key of that time
	}
	var last time.Time
	for searched := 0; searched < maxAuditSearch; searched += auditBatch {
		records, err := r.Records(kind, owner, after, auditBatch)
		if err != nil {
			return p, err
		}
		for i := range records {
			e, err := decodeEntry(&records[i])
			switch {
			case err != nil:
				return p, err
			case e.At.Before(f.from):
				return p, nil
			case f.matches(&e) && len(p.Entries) == limit:
				p.Next = after
				return p, nil
			case f.matches(&e):
				p.Entries = append(p.Entries, e)
			}
			after, last = records[i].Key, e.At
		}
		if len(records) < auditBatch {
			return p, nil
		}
	}
	p.Next, p.SearchedTo = after, last
	return p, nil
}

// decodeEntry reads an entry from its record.
func decodeEntry(r *job.Record) (e Entry, err error) {
	if err := json.Unmarshal(r.Body, &e); err != nil {
		return e, &job.Error{Op: "admin.audit", Msg: "a stored entry cannot be read", Err: err}
	}
	return e, nil
}

// index returns the kind and owner of the records to read.
func (f *auditFilter) index() (kind, owner string) {
	switch {
	case f.target != "":
		return auditByTargetKind, ownerOf(f.target)
	case f.action != "":
		return auditByActionKind, ownerOf(f.action)
	}
	return auditKind, ""
}

// matches reports whether an entry has the action, the target and the actor of the filter.
func (f *auditFilter) matches(e *Entry) bool {
	_, name, _ := strings.Cut(e.Actor, ":")
	if f.actor != "" && f.actor != e.Actor && f.actor != name {
		return false
	}
	return (f.action == "" || f.action == e.Action) && (f.target == "" || f.target == e.Target)
}

// write writes the members of an entry.
func (e *Entry) write(o *strictjson.Object) {
	o.Time("at", e.At)
	o.Text("actor", e.Actor)
	o.Text("action", e.Action)
	o.Text("target", e.Target)
	disclosure(true).raw(o, "before", e.Before)
	disclosure(true).raw(o, "after", e.After)
	o.Optional("request_id", e.RequestID)
	o.Optional("remote", e.Remote)
	o.Optional("refused", e.RefusalCode)
}
