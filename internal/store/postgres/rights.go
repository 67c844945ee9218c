package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// need is a relation of the schema, and what the statements of a node do to it.
type need struct{ Relation, Rights string }

// needed are all of them; docs/operating.md has the grants.
var needed = []need{
	{"jobs", "SELECT INSERT UPDATE DELETE"},
	{"job_numbers", usage},
	{"bodies", "SELECT INSERT UPDATE DELETE"},
	{"events", "SELECT INSERT DELETE"},
	{"outbox", "SELECT INSERT DELETE"},
	{"dead_letters", "SELECT INSERT UPDATE DELETE"}, // pruning locks rows, which takes UPDATE
	{"edges", "SELECT INSERT DELETE"},
	{"queues", "SELECT INSERT UPDATE"},
	{"counts", "SELECT INSERT UPDATE DELETE"},
	{"records", "SELECT INSERT UPDATE DELETE"},
	{"duties", "SELECT INSERT UPDATE DELETE"},
}

// usage is the right to a sequence, which UPDATE includes.
const usage = "USAGE"

// askState reads whether the database takes writes, and the first of needed that the
// role of the node lacks, with an empty right where the relation is not there. It reads
// settings and the catalogue, and no table of the schema.
var askState = `WITH lacks AS (SELECT relation, CASE WHEN at IS NULL THEN '' ELSE privilege END AS privilege
	FROM (VALUES ` + neededRows() + `) AS needed (n,relation,privilege), to_regclass(relation) AS at
	WHERE CASE privilege WHEN 'USAGE' THEN has_sequence_privilege(at,'USAGE, UPDATE')
		ELSE has_table_privilege(at,privilege) END IS NOT TRUE
	ORDER BY n LIMIT 1)
	SELECT current_setting('transaction_read_only')='on', pg_is_in_recovery(),
		coalesce((SELECT relation FROM lacks),''), coalesce((SELECT privilege FROM lacks),'')`

func neededRows() string {
	var rows []string
	for _, n := range needed {
		for right := range strings.FieldsSeq(n.Rights) {
			rows = append(rows, fmt.Sprintf("(%d,'%s','%s')", len(rows), n.Relation, right))
		}
	}
	return strings.Join(rows, ",")
}

// state is what a database says of itself.
type state struct {
	refusesWrites, standby bool
	relation, right        string // that the node lacks; empty where it has all
}

func (s *Store) state(ctx context.Context) (is state, err error) {
	row := s.db.QueryRowContext(ctx, askState)
	err = row.Scan(&is.refusesWrites, &is.standby, &is.relation, &is.right)
	return is, translate("store.ping", err)
}

// lacking is the error of a schema or a role with which some of the work fails.
func (is *state) lacking() error {
	msg := "permission denied by the database: the role has no right to " + is.right + " on " +
		is.relation
	if is.right == "" {
		msg = "the store's schema is not the one that is needed: it has no " + is.relation
	}
	return &job.Error{Kind: job.Unavailable, Op: "store.ping", Msg: msg}
}
