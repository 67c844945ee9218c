package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// need is a relation of the schema with the rights that the statements of a node need. Rights
// are separated by spaces, in the words of GRANT.
type need struct{ Relation, Rights string }

// needed lists every relation; docs/operating.md has the grants.
var needed = []need{
	{"jobs", "SELECT INSERT UPDATE DELETE"},
	{"waiting", "SELECT INSERT UPDATE DELETE"},
	{"ready", "SELECT INSERT UPDATE DELETE"},
	{"leases", "SELECT INSERT UPDATE DELETE"},
	{"finished", "SELECT INSERT UPDATE DELETE"},
	{"searchable", "SELECT INSERT UPDATE DELETE"},
	{"job_numbers", usage},
	{"bodies", "SELECT INSERT UPDATE DELETE"},
	{"events", "SELECT INSERT DELETE"},
	{"outbox", "SELECT INSERT DELETE"},
	{"dead_letters", "SELECT INSERT UPDATE DELETE"}, // pruning locks rows, which needs UPDATE
	{"edges", "SELECT INSERT DELETE"},
	{"queues", "SELECT INSERT UPDATE"},
	{"counts", "SELECT INSERT UPDATE DELETE"},
	{"records", "SELECT INSERT UPDATE DELETE"},
	{"leaders", "SELECT INSERT UPDATE DELETE"},
}

// usage is the right to use a sequence; UPDATE includes it.
const usage = "USAGE"

// askState returns whether the database refuses writes, whether it is a standby, and the first
// right of needed that the role of the node lacks, with an empty right if the relation does not
// exist. It reads settings and the catalogue, but no table of the schema.
var askState = `WITH lacks AS (
	SELECT relation, CASE WHEN at IS NULL THEN '' ELSE privilege END AS privilege
	FROM (VALUES ` + neededRows() + `) AS needed (n,relation,privilege), to_regclass(relation) AS at
	WHERE CASE privilege WHEN 'USAGE' THEN has_sequence_privilege(at,'USAGE, UPDATE')
		ELSE has_table_privilege(at,privilege) END IS NOT TRUE
	ORDER BY n LIMIT 1)
	SELECT current_setting('transaction_read_only')='on', pg_is_in_recovery(),
		coalesce((SELECT relation FROM lacks),''), coalesce((SELECT privilege FROM lacks),'')`

// neededRows returns needed as rows of VALUES: a number for the order, relation and right.
func neededRows() string {
	var rows []string
	for _, n := range needed {
		for right := range strings.FieldsSeq(n.Rights) {
			rows = append(rows, fmt.Sprintf("(%d,'%s','%s')", len(rows), n.Relation, right))
		}
	}
	return strings.Join(rows, ",")
}

// state is the result of askState. With it a Ping names the first thing to put right, before a
// statement fails by it.
type state struct {
	refusesWrites, standby bool
	relation, right        string // what the node lacks; empty if it lacks nothing
}

func (s *Store) state(ctx context.Context) (now state, err error) {
	row := s.db.QueryRowContext(ctx, askState)
	err = row.Scan(&now.refusesWrites, &now.standby, &now.relation, &now.right)
	return now, translate("store.ping", err)
}

// errLacking is the error of a schema or a role with which some statements fail.
func (s *state) errLacking() error {
	msg := "permission denied by the database: the role has no right to " + s.right + " on " +
		s.relation
	if s.right == "" {
		msg = "the store's schema is not the one that is needed: it has no " + s.relation
	}
	return &job.Error{Kind: job.Unavailable, Op: "store.ping", Msg: msg}
}
