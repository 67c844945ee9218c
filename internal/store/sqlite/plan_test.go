package sqlite

import (
	"database/sql"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// plans names the index each statement must use.
var plans = map[string]string{
	"ready_numbers": "COVERING INDEX ready_order",
	"lock_ready":    "ready_order", "lock_due": "waiting_due", "lock_expired": "leases_end",
	"next_due": "waiting_due", "count_ahead": "priority=? AND order_time<?",
	"ready_since": "ready_order",
	"next_lease":  "leases_end", "finished": "finished_age", "get_events": "events_job",
	"delete_events": "events_job",
	"get_jobs":      "jobs_identity (key_start=? AND identity=?)", "get_by_alias": "jobs_alias",
	"list_owned":           "jobs_owner (contract=? AND owner=? AND seq>? AND seq<?)",
	"list_owned_of_states": "jobs_owner (contract=? AND owner=? AND seq>? AND seq<?)",
	"count_owned":          "COVERING INDEX jobs_owner",
	"count_over":           "COVERING INDEX finished_state (contract=? AND state=?)",
	"count_found":          "COVERING INDEX searchable_queue_state (contract=? AND queue=? AND state=?)",
	"count_found_of_all":   "COVERING INDEX searchable_state (contract=? AND state=?)",
	"count_kind":           "COVERING INDEX jobs_kind (contract=? AND kind=?)",

	"group_workers_finished": "COVERING INDEX finished_state (contract>? AND contract<?)",
	"group_workers_waiting":  "COVERING INDEX waiting_worker",
	"group_workers_ready":    "COVERING INDEX ready_worker",

	"finished_numbers":     "COVERING INDEX finished_state (contract=? AND state=? AND seq>? AND seq<?)",
	"queue_numbers":        "INDEX jobs_by_queue (contract=? AND queue=? AND seq>? AND seq<?)",
	"found_numbers":        "COVERING INDEX searchable_queue_state (contract=? AND queue=? AND state=?)",
	"ready_numbers_of":     "COVERING INDEX ready_order (queue_hash=?)",
	"kind_numbers":         "COVERING INDEX jobs_kind (contract=? AND kind=?)",
	"owned_numbers":        "COVERING INDEX jobs_owner (contract=? AND owner=?)",
	"found_numbers_of_all": "COVERING INDEX searchable_state (contract=? AND state=?)",
	"list_children":        "jobs_parent (parent=? AND seq>? AND seq<?)",
	"list_jobs":            "SEARCH s USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
	"scan_end":             "SEARCH s USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
	"dead_numbers":         "dead_letters_open_job (seq>? AND seq<?)",
	"list_runs":            "SEARCH s USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
	"get_records":          "sqlite_autoindex_records_1", "list_records": "records_owner",
	"list_records_of_each": "records_owner (kind=? AND owner=? AND key=?)",
	"old_records":          "records_age", "lock_by_seq": "INTEGER PRIMARY KEY",
	"lock_waiting_by_seq": "INTEGER PRIMARY KEY",
	"lock_free_by_seq":    "INTEGER PRIMARY KEY", "lock_for_lease_by_seq": "INTEGER PRIMARY KEY",
	"lock_for_lease": "jobs_identity (key_start=? AND identity=?)",
	"get_states":     "SEARCH leases USING INTEGER PRIMARY KEY",
	"children":       "jobs_parent",
	"sum_sizes":      "COVERING INDEX jobs_size",
	"edges_from":     "PRIMARY KEY", "edges_to": "edges_dependency",
	"all_edges_from": "SEARCH e USING PRIMARY KEY",
	"dependencies":   "jobs_identity (key_start=? AND identity=?)",
	"search_all": "jobs_listed (contract=? AND priority=? AND (listed,key)>(?,?) AND " +
		"listed<?)",
	"search_queue": "jobs_of_queue (contract=? AND queue=? AND priority=? AND " +
		"(listed,key)>(?,?) AND listed<?)",
	"search_state": "searchable_state (contract=? AND state=? AND priority=? AND " +
		"(listed,key)>(?,?) AND listed<?)",
	"search_queue_state": "searchable_queue_state (contract=? AND queue=? AND state=? AND " +
		"priority=? AND (listed,key)>(?,?) AND listed<?)",
	"get_messages": "outbox_contract", "get_dead_letters": "dead_letters_contract",
	"old_dead_letters": "dead_letters_age", "alike_dead_letters": "dead_letters_alike",
	"dead_letters_by_id": "SEARCH dead_letters USING INTEGER PRIMARY KEY",
	"dead_letters_of":    "dead_letters_job", "unmarked_dead_letters": "dead_letters_unmarked",
	"open_dead_letters_of":  "dead_letters_job",
	"dead_letters_of_queue": "dead_letters_queue (contract=? AND <expr>=? AND id>?)",
	"get_queue_count":       "counts USING PRIMARY KEY (queue_hash=?)",
	"get_whole_queue_count": "done_counts USING PRIMARY KEY (contract=? AND queue=?)",
	"recent_dead_letters":   "dead_letters_age",
	"group_dead_letters":    "COVERING INDEX dead_letters_open (contract=? AND id>? AND id<?)",
}

// wholeTable finds a table of jobs in a plan that is read without an index.
var wholeTable = regexp.MustCompile(`(?m)SCAN (j|s|jobs|waiting|ready|leases|finished)$`)

// merges are the statements that bring a few rows of several kinds into one set, and those that put
// the states to a page.
var merges = map[string]bool{"lock_for_lease": true, "all_edges_from": true, "dead_letters_of": true,
	"open_dead_letters_of": true, "group_dead_letters": true, "list_jobs": true, "list_owned": true,
	"found_numbers": true, "found_numbers_of_all": true, "kind_numbers": true,
	"owned_numbers": true, "ready_numbers_of": true, "list_records_of_each": true,
	"group_workers_finished": true, "group_workers_waiting": true, "group_workers_ready": true}

// nameOf returns the name of a statement in plans and merges: a list in the other direction, or
// without bodies, uses the same index.
func nameOf(st *sqlstore.Statement) string {
	return strings.TrimSuffix(strings.TrimSuffix(st.Name, "_desc"), "_bare")
}

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
	for _, st := range sqlstore.MustUseIndex {
		plan := strings.Join(explain(t, db, dialect.Text(st)), "\n")
		if index := plans[nameOf(st)]; index == "" || !strings.Contains(plan, index) {
			t.Errorf("%s does not use %q:\n%s", st.Name, index, plan)
		}
		isPage := strings.Contains(plan, "CO-ROUTINE j") // which is then what a scan of j reads
		if wholeTable.MatchString(plan) && !isPage {
			t.Errorf("%s reads the whole table:\n%s", st.Name, plan)
		}
		if sorts := strings.Contains(plan, "TEMP B-TREE"); sorts && !merges[nameOf(st)] {
			t.Errorf("%s sorts:\n%s", st.Name, plan)
		}
	}
}

func explain(t *testing.T, db *sql.DB, text string) (plan []string) {
	t.Helper()
	marks := strings.Count(text, "$") + strings.Count(text, "?")
	rows, err := db.Query("EXPLAIN QUERY PLAN "+text, make([]any, marks)...)
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

// A bulk update and a move of several rows find each by its number, also where the table has grown
// and its statistics say that it is small.
func TestPlanOfBulkUpdates(t *testing.T) {
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
	cols := []sqlstore.Column{{Name: "state", Type: sqlstore.Text}, {Name: "worker", Type: sqlstore.Text},
		{Name: "run_id", Type: sqlstore.Bytes}, {Name: "seq", Type: sqlstore.Integer}}
	result := []sqlstore.Column{{Name: "result", Type: sqlstore.Bytes}}
	for _, statistics := range []string{"", `ANALYZE; ANALYZE sqlite_schema;
		INSERT INTO sqlite_stat1 (tbl,idx,stat) VALUES ('ready',NULL,'1'); ANALYZE sqlite_schema`} {
		if _, err := db.Exec(statistics); err != nil {
			t.Fatal(err)
		}
		for _, b := range []*sqlstore.Bulk{
			{Table: "ready", Columns: cols, Key: 3, Update: true},
			{Table: "leases", Columns: cols, Key: 3, From: "ready", Carried: result},
		} {
			for _, key := range []bulkKey{{b: b, same: 3, n: maxRows}, {b: b, n: largeBatchRows},
				{b: b, n: minRows}, {b: b, n: 1}} {
				plan := strings.Join(explain(t, db, key.text()), "\n")
				if !foundByNumber.MatchString(plan) {
					t.Errorf("%d rows, %q: %s", key.n, statistics, plan)
				}
			}
		}
	}
}

var foundByNumber = regexp.MustCompile(`SEARCH (ready|o) USING INTEGER PRIMARY KEY \(rowid=\?\)`)
