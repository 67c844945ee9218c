package sqlite

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// plans names the index each statement must use.
var plans = map[string]string{
	"lock_ready": "jobs_ready", "lock_due": "jobs_due", "lock_lapsed": "jobs_lapse",
	"next_due":   "jobs_due",
	"next_lease": "jobs_lapse", "settled": "jobs_settled", "get_events": "events_job",
	"drop_history": "events_job",
	"get_jobs":     "jobs_ident", "get_by_alias": "jobs_alias", "list_owned": "jobs_owner",
	"get_records": "sqlite_autoindex_records_1", "list_records": "records_owner",
	"old_records": "records_age", "lock_seqs": "INTEGER PRIMARY KEY",
	"list_children": "jobs_parent", "children": "jobs_parent",
	"sum_sizes":  "COVERING INDEX jobs_size",
	"edges_from": "PRIMARY KEY", "edges_to": "edges_dependency",
	"ancestry": "SEARCH e USING PRIMARY KEY", "dependencies": "jobs_ident",
	"search_all": "jobs_listed (contract=? AND priority=? AND (listed,key)>(?,?) AND " +
		"listed<?)",
	"search_queue": "jobs_of_queue (contract=? AND queue=? AND priority=? AND " +
		"(listed,key)>(?,?) AND listed<?)",
	"search_state": "jobs_in_state (contract=? AND state=? AND priority=? AND " +
		"(listed,key)>(?,?) AND listed<?)",
	"search_queue_state": "jobs_of_q_state (contract=? AND queue=? AND state=? AND priority=? " +
		"AND (listed,key)>(?,?) AND listed<?)",
	"get_messages": "outbox_contract", "get_dead_letters": "dead_letters_contract",
	"old_dead_letters": "dead_letters_age",
}

// merges are the statements that bring a few rows of several kinds into one set.
var merges = map[string]bool{"ancestry": true}

func TestPlans(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	s, err := Open(t.Context(), Config{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, st := range sqlstore.Narrow {
		plan := strings.Join(explain(t, db, dialect.Text(st)), "\n")
		if index := plans[st.Name]; index == "" || !strings.Contains(plan, index) {
			t.Errorf("%s does not use %q:\n%s", st.Name, index, plan)
		}
		if strings.Contains(plan, "SCAN jobs\n") || strings.HasSuffix(plan, "SCAN jobs") {
			t.Errorf("%s reads the whole table:\n%s", st.Name, plan)
		}
		if sorts := strings.Contains(plan, "TEMP B-TREE"); sorts && !merges[st.Name] {
			t.Errorf("%s sorts:\n%s", st.Name, plan)
		}
	}
}

func explain(t *testing.T, db *sql.DB, text string) (plan []string) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "$"))...)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, step)
	}
	return plan
}
