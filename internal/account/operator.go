package account

import (
	"cmp"
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
	all, active := make([]Status, len(records)), make([]string, len(records))
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
		active[i] = body.ActiveKeyID
	}
	return all, addKeys(r, all, active)
}

// usageKey is the key of the record of a client's window.
func usageKey(clientID, quota string) string { return clientPrefix + clientID + "/" + quota }

// usageOf returns how much of the present windows of clients nodes have taken, by the keys of the
// records.
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

// addKeys adds the keys that are shown to clients, of which some have an active key. Where that is
// not among the first ones it is read too.
func addKeys(r engine.RecordReader, clients []Status, active []string) error {
	of, owners := map[string]*Status{}, make([]string, len(clients))
	for i := range clients {
		owners[i] = clients[i].ID
		of[owners[i]] = &clients[i]
	}
	first, err := r.RecordsOfEach(keyKind, owners, maxKeysShown+1)
	if err != nil {
		return err
	}
	shown := map[string]bool{}
	for i := range first {
		s := of[first[i].Owner]
		if s.MoreKeys = len(s.Keys) == maxKeysShown; s.MoreKeys {
			continue
		}
		shown[first[i].Key] = true
		if err := s.addKey(&first[i]); err != nil {
			return err
		}
	}
	active = slices.DeleteFunc(active, func(id string) bool { return id == "" || shown[id] })
	if len(active) == 0 {
		return nil
	}
	others, err := r.RecordsOf(keyKind, active...)
	for i := range others {
		err = cmp.Or(err, of[others[i].Owner].addKey(&others[i]))
	}
	return err
}

// addKey adds the key of a record.
func (s *Status) addKey(r *job.Record) error {
	var body keyBody
	err := decodeRecord(r, &body)
	s.Keys = append(s.Keys, newKey(r, &body))
	return err
}

// SetLimits lets edit change the limits of a client, and calls also in the transaction with those
// before and after. They are in force on all nodes within a second. It returns NotFound if there
// is no such client.
func (a *Accounts) SetLimits(ctx context.Context, clientID string, edit func(*OwnLimits),
	also func(w engine.RecordWriter, before, after OwnLimits) error) error {
	id, ok := uuids.Parse(clientID)
	if !ok {
		return errNotFound("client")
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
		return errNotFound("client")
	}
	err := a.revokeKey(ctx, id, keyID, also)
	if errors.Is(err, ErrForbidden) {
		return errNotFound("key of this client")
	}
	return err
}
