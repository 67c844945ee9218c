package account

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// What operators see of clients and change. No key and no digest of one leaves this package.

// Status is a client as operators see it.
type Status struct {
	Client
	Keys     []Key // the first ones, by their age, and the active one
	MoreKeys bool  // there are others, which are revoked
	Own      OwnLimits
	Limits   Limits    // in force
	At       time.Time // of the read, by the store's clock
	// RateUsed and QuotaUsed are the requests of this minute and UTC day that nodes have leased,
	// some of which they may not have used.
	RateUsed, QuotaUsed int
}

// maxKeysShown bounds the keys of a Status.
const maxKeysShown = 20

// Statuses returns the first limit clients with an id above after, by id.
func (a *Accounts) Statuses(ctx context.Context, after string, limit int) (all []Status,
	err error) {
	err = a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		records, err := r.Records(clientKind, "", after, limit)
		if err != nil {
			return err
		}
		all, err = a.statuses(r, records)
		return err
	})
	return all, err
}

// Status returns a client, or NotFound.
func (a *Accounts) Status(ctx context.Context, clientID string) (s Status, err error) {
	err = a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		record, _, err := readClient(r, clientID)
		if err != nil {
			return err
		}
		all, err := a.statuses(r, []job.Record{*record})
		if err != nil {
			return err
		}
		s = all[0]
		return nil
	})
	return s, err
}

// statuses reads what belongs to the records of clients.
func (a *Accounts) statuses(r engine.RecordReader, records []job.Record) ([]Status, error) {
	used, err := a.usageOf(r, records)
	if err != nil {
		return nil, err
	}
	all := make([]Status, len(records))
	for i := range records {
		var body clientBody
		if err := decodeRecord(&records[i], &body); err != nil {
			return nil, err
		}
		s := &all[i]
		s.Client = Client{ID: records[i].Key, CreatedAt: records[i].CreatedAt.UTC()}
		s.At = r.Now()
		s.Own, s.Limits = body.OwnLimits, body.over(a.clients.limits)
		s.RateUsed = used[usageKey(s.ID, perMinute)]
		s.QuotaUsed = used[usageKey(s.ID, perDay)]
		if s.Keys, s.MoreKeys, err = shownKeys(r, s.ID, body.ActiveKeyID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// usageKey is the key of the record of a client's window.
func usageKey(clientID, quota string) string { return clientPrefix + clientID + "/" + quota }

// usageOf returns what is leased of the present windows of clients, by the key of its record.
func (a *Accounts) usageOf(r engine.RecordReader, clients []job.Record) (map[string]int, error) {
	windows := map[string]quota{}
	var keys []string
	for i := range clients {
		for _, q := range []quota{{name: perMinute, length: time.Minute},
			{name: perDay, length: 24 * time.Hour}} {
			key := usageKey(clients[i].Key, q.name)
			windows[key] = q
			keys = append(keys, key)
		}
	}
	records, err := r.RecordsOf(usageKind, keys...)
	if err != nil {
		return nil, err
	}
	used := map[string]int{}
	for i := range records {
		var u usage
		if err := decodeRecord(&records[i], &u); err != nil {
			return nil, err
		}
		used[records[i].Key] = u.current(windows[records[i].Key], r.Now()).Used
	}
	return used, nil
}

// shownKeys returns the keys of a client for its Status.
func shownKeys(r engine.RecordReader, clientID, activeID string) (keys []Key, more bool,
	err error) {
	records, err := r.Records(keyKind, clientID, "", maxKeysShown+1)
	if err != nil {
		return nil, false, err
	}
	if more = len(records) > maxKeysShown; more {
		records = records[:maxKeysShown]
	}
	isActive := func(k job.Record) bool { return k.Key == activeID }
	if activeID != "" && !slices.ContainsFunc(records, isActive) {
		active, err := r.RecordsOf(keyKind, activeID)
		if err != nil {
			return nil, false, err
		}
		records = append(records, active...)
	}
	for i := range records {
		var body keyBody
		if err := decodeRecord(&records[i], &body); err != nil {
			return nil, false, err
		}
		keys = append(keys, newKey(&records[i], &body))
	}
	return keys, more, nil
}

// SetLimits lets edit change the limits of a client, and calls also in the transaction with those
// before and after. They are in force on all nodes within a second. It returns NotFound if there
// is no such client.
func (a *Accounts) SetLimits(ctx context.Context, clientID string, edit func(*OwnLimits),
	also func(w engine.RecordWriter, before, after OwnLimits) error) error {
	id, ok := uuids.Parse(clientID)
	if !ok {
		return notFound("client")
	}
	active := ""
	err := a.Engine.ChangeRecords(ctx, clientLock(id), func(w engine.RecordWriter) error {
		_, body, err := readClient(w, id)
		if err != nil {
			return err
		}
		active = body.ActiveKeyID
		before := body.OwnLimits
		edit(&body.OwnLimits)
		if err := putRecord(w, job.Record{Kind: clientKind, Key: id}, body); err != nil {
			return err
		}
		return also(w, before, body.OwnLimits)
	})
	a.keys.invalidate(active)
	return err
}

// RevokeAny revokes a key of a client at an operator's request, as RevokeKey does, and calls also
// in the transaction. It returns NotFound if the client has no such key. A key that is revoked
// stays as it is, and also is not called.
func (a *Accounts) RevokeAny(ctx context.Context, clientID, keyID string,
	also func(engine.RecordWriter) error) error {
	id, ok := uuids.Parse(clientID)
	if !ok {
		return notFound("client")
	}
	err := a.revokeKey(ctx, id, keyID, also)
	if errors.Is(err, ErrForbidden) {
		return notFound("key of this client")
	}
	return err
}
