package sqlstore

import (
	"database/sql"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Records are what the server stores besides jobs: subscriptions, sessions, drains, the audit log.
// All are in one table, by kind and key, so that a new kind needs no migration:
//
//	kind, key     the primary key: one record, or all of a kind by key
//	kind, owner   an index: the records of a job, a client, a subscription
//	expires_at    an index for pruning alone
//
// An expired record does not exist for readers, whether or not it was pruned yet. Records are found
// by their key or owner, never by their expiry.
const (
	recordColumns = "kind,key,owner,body,created_at,updated_at,expires_at"
	rowExists     = "({unindexed expires_at}<=0 OR {unindexed expires_at}>$1)"
)

var (
	getRecords = &Statement{"get_records",
		"SELECT " + recordColumns + " FROM records WHERE " + rowExists +
			" AND kind=$2 AND key {text in $3} ORDER BY key"}
	listRecords = &Statement{"list_records",
		"SELECT " + recordColumns + " FROM records WHERE " + rowExists +
			" AND kind=$2 AND owner=$3 AND key>$4 ORDER BY key {limit $5}"}
	listAnyRecords = &Statement{"list_any_records",
		"SELECT " + recordColumns + " FROM records WHERE " + rowExists +
			" AND kind=$2 AND key>$3 ORDER BY key {limit $4}"}
	listEachRecords = &Statement{"list_records_of_each",
		"SELECT " + recordColumns + " FROM ({each text in $3}) AS o CROSS JOIN records WHERE " +
			rowExists + ` AND kind=$2 AND owner=o.value AND key {among SELECT k.key
			FROM records AS k WHERE k.kind=$2 AND k.owner=o.value ORDER BY k.key {limit $4}}
			ORDER BY owner,key`}
	// A record that replaces an expired one is a new one and gets its own created_at.
	putRecords = insertInto("put_records", "records",
		[]Column{{"kind", Text}, {"key", Text}, {"owner", Text}, {"body", Bytes},
			{"created_at", Integer}, {"updated_at", Integer}, {"expires_at", Integer}},
		`ON CONFLICT (kind,key) DO UPDATE SET owner=excluded.owner, body=excluded.body,
		updated_at=excluded.updated_at, expires_at=excluded.expires_at,
		created_at=CASE WHEN records.expires_at>0 AND records.expires_at<=excluded.updated_at
		THEN excluded.created_at ELSE records.created_at END`)
	deleteRecords = &Statement{"delete_records",
		"DELETE FROM records WHERE kind=$1 AND key {text in $2}"}
	oldRecords = &Statement{"old_records",
		"SELECT " + recordColumns +
			` FROM records WHERE expires_at>0 AND expires_at<=$1
			ORDER BY expires_at {limit $2} {skip locked}`}
)

// Records is documented at the port.
func (t *Tx) Records(s store.RecordSelector) ([]job.Record, error) {
	switch {
	case len(s.Keys) > 0:
		return collect(t, getRecords, scanRecord, Micros(t.Now()), s.Kind, t.s.Texts(s.Keys))
	case len(s.Owners) > 0:
		return collect(t, listEachRecords, scanRecord, Micros(t.Now()), s.Kind,
			t.s.Texts(s.Owners), s.Limit)
	case s.Limit > 0 && s.AnyOwner:
		return collect(t, listAnyRecords, scanRecord, Micros(t.Now()), s.Kind, s.After, s.Limit)
	case s.Limit > 0:
		return collect(t, listRecords, scanRecord, Micros(t.Now()), s.Kind, s.Owner, s.After,
			s.Limit)
	default:
		return nil, t.failed
	}
}

// scanRecord reads a row of recordColumns.
func scanRecord(rows *sql.Rows) (r job.Record, err error) {
	var created, updated, expires int64
	err = rows.Scan(&r.Kind, &r.Key, &r.Owner, (*blob)(&r.Body), &created, &updated, &expires)
	r.CreatedAt, r.UpdatedAt, r.ExpiresAt = fromMicros(created), fromMicros(updated),
		fromMicros(expires)
	return r, err
}

// upsertRecords inserts or replaces records. They get the time of the transaction, whatever the
// records say, but for ExpiresAt. A nil body is stored as an empty one.
func (t *Tx) upsertRecords(records []job.Record) error {
	rows := make([][]any, len(records))
	for i, r := range records {
		body := r.Body
		if body == nil {
			body = []byte{}
		}
		rows[i] = []any{r.Kind, r.Key, r.Owner, body, Micros(t.Now()), Micros(t.Now()),
			Micros(r.ExpiresAt)}
	}
	return t.bulk(putRecords, rows)
}

// checkRecord refuses names that one of the databases cannot keep.
func checkRecord(r job.Record) error {
	if areValidTexts(r.Kind, r.Key, r.Owner) {
		return nil
	}
	return &job.Error{Kind: job.Invalid, Op: "apply",
		Msg: "a name is too long, not UTF-8 or holds a NUL character"}
}

// deleteRecords removes the records of each kind by one statement. Kinds go in alphabetical
// order. A record that does not exist is no error.
func (t *Tx) deleteRecords(records []store.RecordKey) error {
	byKind := map[string][]string{}
	for _, r := range records {
		byKind[r.Kind] = append(byKind[r.Kind], r.Key)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		if _, err := t.exec(deleteRecords, kind, t.s.Texts(byKind[kind])); err != nil {
			return err
		}
	}
	return nil
}

// PruneRecords is documented at the port.
func (t *Tx) PruneRecords(n int) (int, error) {
	old, err := collect(t, oldRecords, scanRecord, Micros(t.Now()), n)
	if err != nil {
		return 0, err
	}
	keys := make([]store.RecordKey, len(old))
	for i, r := range old {
		keys[i] = store.RecordKey{Kind: r.Kind, Key: r.Key}
	}
	return len(old), t.deleteRecords(keys)
}
