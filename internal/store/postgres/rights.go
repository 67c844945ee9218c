package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// requirement is a relation of the schema with the rights that the statements of a node need.
// Rights are separated by spaces, in the words of GRANT.
type requirement struct{ Relation, Rights string }

// required lists every relation; docs/operating.md has the grants.
var required = []requirement{
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
	{"done_counts", "SELECT INSERT UPDATE DELETE"},
	{"records", "SELECT INSERT UPDATE DELETE"},
	{"leaders", "SELECT INSERT UPDATE DELETE"},
	{"inbox", "SELECT UPDATE DELETE"},
	{"inbox_transactions", "SELECT INSERT UPDATE DELETE"},
	{"run_ends", "SELECT UPDATE DELETE"}, // rows are locked, which needs UPDATE
}

// usage is the right to use a sequence; UPDATE includes it.
const usage = "USAGE"

// requiredTables returns the tables among required.
func requiredTables() (names []string) {
	for _, n := range required {
		if n.Rights != usage {
			names = append(names, n.Relation)
		}
	}
	return names
}

// selectState returns whether the database refuses writes, whether it is a standby, and the first
// right of required that the role of the node lacks, with an empty right if the relation does not
// exist. It reads settings and the catalogue, but no table of the schema.
var selectState = `WITH lacks AS (
	SELECT relation, CASE WHEN at IS NULL THEN '' ELSE privilege END AS privilege
	FROM (VALUES ` + requiredRows() + `) AS needed (n,relation,privilege),
		to_regclass(relation) AS at
	WHERE CASE privilege WHEN 'USAGE' THEN has_sequence_privilege(at,'USAGE, UPDATE')
		ELSE has_table_privilege(at,privilege) END IS NOT TRUE
	ORDER BY n LIMIT 1)
	SELECT current_setting('transaction_read_only')='on', pg_is_in_recovery(),
		coalesce((SELECT relation FROM lacks),''), coalesce((SELECT privilege FROM lacks),'')`

// requiredRows returns required as rows of VALUES: a number for the order, relation and right.
func requiredRows() string {
	var rows []string
	for _, n := range required {
		for right := range strings.FieldsSeq(n.Rights) {
			rows = append(rows, fmt.Sprintf("(%d,'%s','%s')", len(rows), n.Relation, right))
		}
	}
	return strings.Join(rows, ",")
}

// state is the result of selectState. With it a Ping names the first thing to put right, before a
// statement fails by it.
type state struct {
	refusesWrites, isStandby      bool
	missingRelation, missingRight string // what the node lacks; empty if it lacks nothing
}

// selectFunctionCreators lists who may make functions in the schema of the tables, or in the one
// that producers and workers call, besides superusers, the owner of the tables and the role of the
// node. A function of theirs may fit a call, or one of a function that runs with the rights of the
// owner, better than the one that is meant. The role pg_database_owner is the owner of the
// database.
const selectFunctionCreators = `WITH schemas AS (
	SELECT n.nspacl, n.nspowner, c.relowner FROM pg_class AS c
	JOIN pg_namespace AS t ON t.oid=c.relnamespace
	JOIN pg_namespace AS n ON n.oid=t.oid OR (t.nspname='public' AND n.nspname='millrace')
	WHERE c.oid=to_regclass('jobs')
), creators AS (
	SELECT a.grantee AS role, s.relowner FROM schemas AS s, aclexplode(s.nspacl) AS a
	WHERE a.privilege_type='CREATE' AND a.grantee<>s.nspowner
	UNION SELECT CASE s.nspowner WHEN to_regrole('pg_database_owner')::oid THEN d.datdba
	ELSE s.nspowner END, s.relowner
	FROM schemas AS s JOIN pg_database AS d ON d.datname=current_database()
)
	SELECT coalesce(string_agg(DISTINCT coalesce(r.rolname::text,'PUBLIC'), ', '), '')
	FROM creators AS c LEFT JOIN pg_roles AS r ON r.oid=c.role
	WHERE c.role NOT IN (c.relowner,to_regrole(quote_ident(current_user))::oid)
	AND r.rolsuper IS NOT TRUE`

// warnOfFunctionCreators warns of roles that selectFunctionCreators lists.
func (s *Store) warnOfFunctionCreators(ctx context.Context) {
	var roles string
	if err := s.db.QueryRowContext(ctx, selectFunctionCreators).Scan(&roles); err != nil ||
		roles == "" {
		return
	}
	s.config.Log.Warn("other roles may make functions in the schema of the store or of its "+
		"functions, and so act as its owner or its callers: REVOKE CREATE ON SCHEMA, or ALTER "+
		"SCHEMA with OWNER TO, takes that from them", "roles", roles)
}

func (s *Store) state(ctx context.Context) (now state, err error) {
	row := s.db.QueryRowContext(ctx, selectState)
	err = row.Scan(&now.refusesWrites, &now.isStandby, &now.missingRelation, &now.missingRight)
	return now, translate("store.ping", err)
}

// errMissingRight is the error of a schema or a role with which some statements fail.
func (s *state) errMissingRight() error {
	msg := "permission denied by the database: the role has no right to " + s.missingRight + " on " +
		s.missingRelation
	if s.missingRight == "" {
		msg = "the store's schema is not the one that is needed: it has no " + s.missingRelation
	}
	return &job.Error{Kind: job.Unavailable, Op: "store.ping", Msg: msg}
}
