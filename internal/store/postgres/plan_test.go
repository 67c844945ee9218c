package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// plans names the index each statement must use, and values for its parameters.
var plans = map[string]struct{ index, values string }{
	"lock_ready":       {"ready_order", "7,'c','q7',50"},
	"ready_numbers":    {"ready_order", "7,50"},
	"lock_ready_from":  {"ready_late", "7,'c','q7',50," + someWatermarks},
	"ready_heads":      {"ready_order", "7," + someWatermarks + ",'{-1,-1,-1}'"},
	"lock_due":         {"waiting_due", "5000,50,0,'{}'"},
	"lock_expired":     {"leases_end", "5000,0,50,7"},
	"list_run_ends":    {"run_ends_pkey", "77,32"},
	"get_run_ends":     {"run_ends_pkey", "'{1,2,3}'"},
	"next_due_or_end":  {"run_ends_pkey", "5000"},
	"lock_free_by_seq": {"jobs_pkey", "'{1,2,3}'"},
	"next_due":         {"waiting_due", "5000"},
	"count_ahead":      {"ready_order", "7,1,5000,77,50"},
	"ready_since":      {"ready_order", "'{1,2}'"},
	"next_lease":       {"leases_end", "5000,7"},
	"finished":         {"finished_age", "'c',5000,50"},
	"get_events":       {"events_job", "77,2001"},
	"delete_events":    {"events_job", "'{1,2,3}'"},
	"get_jobs":         {"jobs_identity", `'{"\\x01","\\x02"}'`},
	"get_by_alias":     {"jobs_alias", `'{"\\x01","\\x02"}'`},
	"count_owned":      {"jobs_owner", "'c','{o7,o8}',50"},
	"count_over":       {"finished_state", "'c','{state1,state2}',50"},
	"count_found":      {"searchable_queue_state", "'c','{state1,state2}',50,'q7'"},
	"count_kind":       {"Only Scan using jobs_kind", "'c','{k1,k2}',50"},

	"found_numbers_of_all":   {"searchable_state", "5,9000,50,'c','state2'"},
	"count_found_of_all":     {"Only Scan using searchable_state", "'c','{state1,state2}',50"},
	"group_workers_finished": {"Only Scan using finished_state", "50,50,'c'"},
	"group_workers_waiting":  {"Only Scan using waiting_worker", "50,50,'c','q7'"},
	"group_workers_ready":    {"Only Scan using ready_worker", "50,50,'c','q7'"},

	"finished_numbers": {"finished_state", "5,9000,50,'c','state2'"},
	"queue_numbers":    {"jobs_by_queue", "5,9000,50,'c','q7'"},
	"found_numbers":    {"searchable_queue_state", "5,9000,50,'c','q7','state2'"},
	"ready_numbers_of": {"ready_order", "5,9000,50,7"},
	"kind_numbers":     {"jobs_kind", "5,9000,50,'c','k2'"},
	"owned_numbers":    {"Only Scan using jobs_owner", "5,9000,50,'c','{o7,o8}'"},
	"get_records":      {"records_pkey", "5000,'k','{1,2}'"},
	"list_records":     {"records_owner", "5000,'k','o7','',50"},
	"old_records":      {"records_age", "5000,50"},
	"lock_by_seq":      {"jobs_pkey", "'{1,2,3}'"},

	"lock_waiting_by_seq":   {"jobs_pkey", "'{1,2,3}'"},
	"lock_for_lease_by_seq": {"jobs_pkey", "'{1,2,3}'"},
	"lock_for_lease":        {"jobs_identity", `'{"\\x01","\\x02"}'`},
	"get_states":            {"leases_pkey", "'{1,2,3}'"},
	"children":              {"jobs_parent", "'{7,8}',50"},
	"sum_sizes":             {"jobs_size", "'c'"},
	"edges_from":            {"edges_", "'{1,2,3}'"},
	"edges_to":              {"edges_dependency", "'{1,2,3}',50"},
	"all_edges_from":        {"edges_", "'{1,2,3}'"},
	"dependencies":          {"jobs_identity", `'{"\\x01","\\x02"}'`},
	"search_all":            {"jobs_listed", "'c',-20000,'k',-5000,50,0,10,'',''"},
	"search_queue":          {"jobs_of_queue", "'c',-20000,'k',-5000,50,0,10,'q7',''"},
	"search_state":          {"searchable_state", "'c',-20000,'k',-5000,50,0,10,'','state2'"},
	"search_queue_state":    {"searchable_queue_state", "'c',-20000,'k',-5000,50,0,10,'q7','state2'"},
	"get_messages":          {"outbox_contract", "'c1',50"},
	"get_dead_letters":      {"dead_letters_contract", "'c',5,50"},
	"old_dead_letters":      {"dead_letters_age", "'c',5,50"},
	"alike_dead_letters":    {"dead_letters_alike", "'f7',5,50"},
	"dead_letters_by_id":    {"dead_letters_pkey", "'{1,2,3}'"},
	"dead_letters_of":       {"dead_letters_job", "'{1,2,3}'"},

	"list_records_of_each":  {"records_owner", "5000,'k','{o7,o8}',50"},
	"open_dead_letters_of":  {"dead_letters_job", "'{1,2,3}'"},
	"dead_letters_of_queue": {"dead_letters_queue", "'q7',5,50,'c1','q7'"},
	"get_queue_count":       {"counts_pkey", "'c','q7',7"},
	"get_whole_queue_count": {"done_counts_pkey", "'c','q7',7"},

	"list_owned":           {"jobs_owner", "5,9000,'c','o7',50"},
	"list_owned_of_states": {"jobs_owner", "5,9000,'c','o7',50,'{state2}'"},
	"list_children":        {"jobs_parent", "5,9000,7,0,'{}',50"},
	"list_jobs":            {"finished_pkey", "5,9000,'c','','','','',0,'{}',0,0,0,0,0,50,15"},
	"scan_end":             {"finished_pkey", "5,9000,50,15"},
	"dead_numbers":         {"dead_letters_open_job", "5,9000,50"},
	"list_runs":            {"leases_pkey", "5,9000,50"},

	"unmarked_dead_letters": {"dead_letters_unmarked", "'c',50"},
	"recent_dead_letters":   {"dead_letters_age", "'c',5,50"},
	"group_dead_letters":    {"dead_letters_", "'c',5,9000,50"},
}

const someWatermarks = "'{9,1,0}','{2,1,-9}','{-1,5000,-1}'"

// fill stores enough that reading whole tables does not pay.
const fill = `
INSERT INTO jobs (seq,identity,contract,scope,key,order_time,kind,queue,owner,priority,lease,parent,trace,created_at,listed,size,payload)
	SELECT n, sha256(n::text::bytea), 'c', '', n::text, n, 'k'||n%5, 'q'||n/4%100, 'o'||n%1000, n%3, 1000, n%7*(n/100), '', n, -n, n%20/19,
	repeat('x',100)::bytea FROM generate_series(1,30000) n;
INSERT INTO waiting (seq,state,worker,due_at,updated_at) SELECT n, 'state'||n%5, 'w'||n%9, n, n FROM generate_series(4,30000,4) n;
INSERT INTO ready (seq,state,worker,due_at,queue_hash,priority,order_time) SELECT n, 'state'||n%5, 'w'||n%9, n, n/4%100, n%3, n FROM generate_series(1,30000,4) n;
INSERT INTO leases (seq,state,worker,due_at,lease_until,updated_at) SELECT n, 'state'||n%5, 'w'||n%9, n, n, n FROM generate_series(2,30000,4) n;
UPDATE leases SET run_id=sha256(seq::text::bytea) WHERE seq%5=0;
INSERT INTO run_ends (seq,run_id,recorded_at,succeeded) SELECT seq,run_id,seq,true FROM leases WHERE run_id IS NOT NULL;
INSERT INTO finished (seq,state,worker,due_at,finished_at,contract) SELECT n, 'state'||n%5, 'w'||n%9, n, n, 'c' FROM generate_series(3,30000,4) n;
INSERT INTO searchable (seq,listed,priority,contract,queue,state,key) SELECT n, -n, n%3, 'c', 'q'||n/4%100, 'state'||n%5, n::text FROM generate_series(1,30000) n;
INSERT INTO events (seq,cause,prev,next,at,reason) SELECT n%10000, 'due', '', '', n, '' FROM generate_series(1,30000) n;
INSERT INTO edges SELECT n, n/2 FROM generate_series(1,20000) n;
INSERT INTO outbox (contract,scope,key,seq,cause,prev,next,at,reason) SELECT 'c'||n%3,'','',n,'due','','',n,'' FROM generate_series(1,20000) n;
INSERT INTO dead_letters (contract,cause,created_at,job,seq,fingerprint,queue) SELECT 'c'||n%3,'due',n,'',n,'f'||n%500,'q'||n%500 FROM generate_series(1,20000) n;
INSERT INTO counts (queue_hash,slot,contract,queue,waiting,delayed,ready,leased) SELECT n,0,'c','q'||n,0,0,n%2,0 FROM generate_series(1,20000) n;
INSERT INTO done_counts (contract,queue,done) SELECT 'c','q'||n,1 FROM generate_series(1,20000) n;
INSERT INTO records SELECT 'k', n::text, 'o'||n%1000, '', n, n, n FROM generate_series(1,20000) n;
UPDATE jobs SET alias=identity WHERE seq%10=0;
ANALYZE records, jobs, waiting, ready, leases, finished, searchable, events, edges, outbox, dead_letters, counts, done_counts, run_ends;`

// merges are the statements that bring a few rows of several kinds into one set.
var merges = map[string]bool{"group_dead_letters": true, "list_jobs": true, "found_numbers": true,
	"found_numbers_of_all": true, "kind_numbers": true, "owned_numbers": true,
	"ready_numbers_of": true, "list_records_of_each": true, "group_workers_finished": true,
	"group_workers_waiting": true, "group_workers_ready": true}

// nameOf returns the name of a statement in plans and merges: a list in the other direction, or
// without bodies, uses the same index.
func nameOf(st *sqlstore.Statement) string {
	return strings.TrimSuffix(strings.TrimSuffix(st.Name, "_desc"), "_bare")
}

// TestPlans looks at the plan for given values and at the one PostgreSQL keeps for any: it may
// change from one to the other after some runs.
func TestPlans(t *testing.T) {
	t.Parallel()
	conn, exec := filled(t)
	for _, st := range narrow(lockReadyFrom, readyHeads) {
		want := plans[nameOf(st)]
		exec("PREPARE p AS " + dialect.Text(st))
		for _, mode := range planModes {
			exec("SET plan_cache_mode=" + mode)
			plan := strings.Join(explained(t, conn, want.values), "\n")
			if want.index == "" || !strings.Contains(plan, want.index) ||
				strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s, %s: does not use %q:\n%s", st.Name, mode, want.index, plan)
			}
			// A merge of ordered inputs has their order as its "Sort Key".
			if strings.Contains(strings.ReplaceAll(plan, "Sort Key", ""), "Sort") &&
				strings.Contains(dialect.Text(st), "LIMIT") && !merges[nameOf(st)] {
				t.Errorf("%s, %s: sorts:\n%s", st.Name, mode, plan)
			}
		}
		exec("DEALLOCATE p")
	}
}

// narrow returns all statements whose cost must not grow with the tables, and some more. Two of the
// shared ones never run here.
func narrow(more ...*sqlstore.Statement) []*sqlstore.Statement {
	shared := slices.DeleteFunc(slices.Clone(sqlstore.MustUseIndex),
		func(st *sqlstore.Statement) bool {
			return st == sqlstore.LockExpired || st == sqlstore.NextLease
		})
	own := []*sqlstore.Statement{lockExpiredFrom, nextLeaseFrom, listRunEnds, getRunEnds,
		nextDueOrEnd}
	return slices.Concat(shared, own, more)
}

// planModes are the plan for given values and the one that PostgreSQL keeps for any.
var planModes = []string{"force_custom_plan", "force_generic_plan"}

// filled returns a connection, with the settings of the store's own, to a database with the rows of
// fill, and runs statements on it.
func filled(t *testing.T) (conn *sql.Conn, exec func(string)) {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: pgtest.URL(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if conn, err = s.db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	exec = func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	for _, text := range strings.Split(strings.TrimSuffix(fill, ";"), ";\n") {
		exec(text)
	}
	return conn, exec
}

// TestPlansOfTablesFoundEmpty: no statement reads a whole index, although vacuum found the tables
// without a row.
func TestPlansOfTablesFoundEmpty(t *testing.T) {
	t.Parallel()
	conn, exec := filled(t)
	for _, table := range []string{"jobs", "waiting", "ready", "leases", "finished", "searchable",
		"run_ends"} {
		exec("DELETE FROM " + table)
		exec("ANALYZE " + table) // which leaves the pages
	}
	move := &sqlstore.PhaseChange{Bulk: &sqlstore.Bulk{Name: "move", Table: "finished",
		From:    "leases",
		Columns: []sqlstore.Column{{Name: "state", Type: sqlstore.Text}, {Name: "seq", Type: sqlstore.Integer}},
		Key:     1, Carried: []sqlstore.Column{{Name: "result", Type: sqlstore.Bytes}}}, Searchable: true}
	update := &sqlstore.Bulk{Name: "update", Table: "leases", Update: true, Key: 1,
		Columns: []sqlstore.Column{{Name: "lease_until", Type: sqlstore.Integer}, {Name: "seq", Type: sqlstore.Integer}}}
	texts := map[string][2]string{
		"move":   {phaseChangeText(move, 0), "'{a,b}','{1,2}'"},
		"update": {bulkText(update, 0), "'{1,2}','{1,2}'"},
	}
	for _, st := range narrow(lockReadyFrom) {
		texts[st.Name] = [2]string{dialect.Text(st), plans[nameOf(st)].values}
	}
	for name, text := range texts {
		exec("PREPARE p AS " + text[0])
		for _, mode := range planModes {
			exec("SET plan_cache_mode=" + mode)
			plan := explained(t, conn, text[1])
			for scan := range unbounded(plan) {
				t.Errorf("%s, %s: %q reads all:\n%s", name, mode, scan, strings.Join(plan, "\n"))
			}
		}
		exec("DEALLOCATE p")
	}
}

// explained returns the lines of the plan of the prepared statement p.
func explained(t *testing.T, conn *sql.Conn, values string) (lines []string) {
	t.Helper()
	call := "EXPLAIN EXECUTE p"
	if values != "" {
		call += "(" + values + ")"
	}
	return explainedBy(t, conn, call)
}

// explainedBy returns the lines of the plan that a statement returns.
func explainedBy(t *testing.T, conn *sql.Conn, call string) (lines []string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), call)
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	defer rows.Close()
	for rows.Next() {
		line := ""
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// unbounded returns the scans of a plan that have no condition of their index.
func unbounded(plan []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, line := range plan {
			scan := strings.TrimSpace(line)
			isScan := strings.Contains(scan, "Index Scan") ||
				strings.Contains(scan, "Index Only Scan")
			isBounded := i+1 < len(plan) && strings.Contains(plan[i+1], "Index Cond")
			if (isScan && !isBounded) || strings.Contains(scan, "Seq Scan") {
				if !yield(scan) {
					return
				}
			}
		}
	}
}

// TestRowsOfCounts: jobs are counted in windows, whatever else is stored: a statement reads the
// rows of a window and those that it passes over.
func TestRowsOfCounts(t *testing.T) {
	t.Parallel()
	conn, exec := filled(t)
	values := [...]string{"50,50,'c','q7'", "50,50,'c','q7'", "50,50,7", "50,'{7,8}'"}
	for i, groups := range sqlstore.Groups {
		for _, st := range slices.Concat(groups[store.ByState][:], groups[store.ByKind][:],
			groups[store.ByWorker][:]) {
			wantRows(t, conn, exec, st, values[i])
		}
	}
	for _, st := range sqlstore.MustUseIndex {
		if strings.HasPrefix(st.Name, "group_workers_") {
			wantRows(t, conn, exec, st, plans[st.Name].values)
		}
	}
}

// wantRows fails if a step of the plans of a statement reads more than a window of 50 rows and as
// many that it passes over.
func wantRows(t *testing.T, conn *sql.Conn, exec func(string), st *sqlstore.Statement,
	values string) {
	t.Helper()
	exec("PREPARE p AS " + dialect.Text(st))
	defer exec("DEALLOCATE p")
	for _, mode := range planModes {
		exec("SET plan_cache_mode=" + mode)
		plan := explainedBy(t, conn, "EXPLAIN (ANALYZE,TIMING OFF) EXECUTE p("+values+")")
		for _, line := range plan {
			rows, loops := 0, 0
			_, actual, found := strings.Cut(line, "(actual ")
			if !found {
				continue
			}
			if _, err := fmt.Sscanf(actual, "rows=%d loops=%d", &rows, &loops); err != nil ||
				rows*loops > 100 {
				t.Errorf("AD-018 %s, %s: %v, %q in\n%s", st.Name, mode, err, line,
					strings.Join(plan, "\n"))
			}
		}
	}
}
