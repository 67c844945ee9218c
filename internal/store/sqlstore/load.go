package sqlstore

import (
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A job is found by the hash of its identity (ident), by its number (seq) or by its alias: the
// texts of an identity can be longer than an index entry. Load has a statement for each of these
// keys, each choice of bodies, with and without a lock:
//
//	Selector ─▶ load ─▶ loads[load] ─▶ rows ─▶ scanner ─▶ jobs ─▶ loadOutOfLine

// load is what differs between the statements of Load.
type load struct {
	key    loadKey
	bodies store.Bodies
	lock   bool
}

// loadKey is the condition that finds jobs by a key.
type loadKey string

const (
	byID    loadKey = "ident {blob in $1}"
	bySeq   loadKey = "seq {in $1}"
	byAlias loadKey = "alias {blob in $1}"
)

// loadNames are the names of the statements that the engine uses. The others have names made of
// their parts.
var loadNames = map[load]string{
	{byID, store.AllBodies, false}:       "get_jobs",
	{byID, store.NoBodies, true}:         "lock_jobs",
	{bySeq, store.AllBodies, false}:      "get_seqs",
	{bySeq, store.DefinitionOnly, false}: "get_briefs",
	{bySeq, store.OnlyBodies, false}:     "load_bodies",
	{bySeq, store.NoBodies, true}:        "lock_seqs",
	{byAlias, store.AllBodies, false}:    "get_by_alias",
	{byAlias, store.NoBodies, true}:      "lock_by_alias",
}

var (
	onlyBodyColumns = append([]jobColumn{seqColumn, outOfLineColumn}, bodyColumns[:]...)
	// loadedColumns are the columns that are read for each choice of bodies.
	loadedColumns = [...][]jobColumn{
		store.NoBodies:       coreColumns,
		store.DefinitionOnly: briefColumns,
		store.AllBodies:      fullColumns,
		store.OnlyBodies:     onlyBodyColumns,
	}
	loads = loadStatements()
)

// loadStatements makes all variants at the start of the process: 3 keys, 4 choices of bodies,
// each with and without a lock. Those that lock do it by number, so that no two transactions
// wait for each other in a circle; the others leave the order to the database.
func loadStatements() map[load]*Statement {
	all := map[load]*Statement{}
	for _, key := range []loadKey{byID, bySeq, byAlias} {
		for bodies, columns := range loadedColumns {
			text := "SELECT " + selected(columns) + " FROM jobs WHERE " + string(key)
			l := load{key, store.Bodies(bodies), false}
			all[l] = &Statement{l.name(), text}
			l.lock = true
			all[l] = &Statement{l.name(), text + " ORDER BY seq {for update}"}
		}
	}
	return all
}

// name returns the name of a variant, such as lock_brief_by_seq, which is its metric label.
func (l load) name() string {
	if name := loadNames[l]; name != "" {
		return name
	}
	verb := "get"
	if l.lock {
		verb = "lock"
	}
	column, _, _ := strings.Cut(string(l.key), " ")
	bodies := [...]string{store.NoBodies: "bare", store.DefinitionOnly: "brief",
		store.AllBodies: "full", store.OnlyBodies: "bodies"}[l.bodies]
	return verb + "_" + bodies + "_by_" + column
}

// Load is documented at the port. A selector without keys selects no job and runs no statement.
func (t *Tx) Load(s store.Selector) ([]*job.Job, error) {
	if s.Lock && t.isView {
		return nil, &job.Error{Kind: job.Internal, Op: "load", Msg: "a view locks no jobs"}
	}
	l := load{bodies: s.Bodies, lock: s.Lock}
	var keys any
	switch {
	case len(s.IDs) > 0:
		l.key, keys = byID, t.s.IdentityHashes(idents(s.IDs))
	case len(s.Seqs) > 0:
		l.key, keys = bySeq, t.s.Ints(s.Seqs)
	case len(s.Aliases) > 0:
		l.key, keys = byAlias, t.s.IdentityHashes(s.Aliases)
	default:
		return nil, t.failed
	}
	return t.jobs(s.Bodies, loads[l], keys)
}

// jobs runs a select of loadedColumns and loads those of the bodies that are out of line.
func (t *Tx) jobs(bodies store.Bodies, s *Statement, args ...any) ([]*job.Job, error) {
	all, err := collect(t, s, newScanner(loadedColumns[bodies]).scan, args...)
	if err != nil {
		return nil, err
	}
	return all, t.loadOutOfLine(bodies, all)
}

// idents returns the hashes of identities, in their order.
func idents(ids []job.ID) []job.IdentityHash {
	all := make([]job.IdentityHash, len(ids))
	for i, id := range ids {
		all[i] = id.IdentityHash()
	}
	return all
}
