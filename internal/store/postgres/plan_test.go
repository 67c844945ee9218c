package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/sqlstore"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// plans names the index each statement must use, and values for its parameters.
var plans = map[string]struct{ index, values string }{
	"lock_ready":         {"jobs_ready", "7,'c','q7',50"},
	"lock_due":           {"jobs_due", "5000,50,0,'{}'"},
	"lock_lapsed":        {"jobs_lapse", "5000,0,50"},
	"next_due":           {"jobs_due", ""},
	"next_lease":         {"jobs_lapse", ""},
	"settled":            {"jobs_settled", "'c',5000,50"},
	"get_events":         {"events_job", "77"},
	"drop_history":       {"events_job", "'{1,2,3}'"},
	"get_jobs":           {"jobs_ident", `'{"\\x01","\\x02"}'`},
	"get_by_alias":       {"jobs_alias", `'{"\\x01","\\x02"}'`},
	"list_owned":         {"jobs_owner", "'c','o7',5000,0,'{}',50"},
	"get_records":        {"records_pkey", "5000,'k','{1,2}'"},
	"list_records":       {"records_", "5000,'k','o7','',50"},
	"old_records":        {"records_age", "5000,50"},
	"lock_seqs":          {"jobs_pkey", "'{1,2,3}'"},
	"list_children":      {"jobs_parent", "7,0,0,'{}',50"},
	"children":           {"jobs_parent", "'{7,8}',50"},
	"sum_sizes":          {"jobs_size", "'c'"},
	"edges_from":         {"edges_", "'{1,2,3}'"},
	"edges_to":           {"edges_dependency", "'{1,2,3}',50"},
	"ancestry":           {"edges_", "'{1,2,3}'"},
	"dependencies":       {"jobs_ident", `'{"\\x01","\\x02"}'`},
	"search_all":         {"jobs_listed", "'c',-20000,'k',-5000,50,0,10,'',''"},
	"search_queue":       {"jobs_of_queue", "'c',-20000,'k',-5000,50,0,10,'q7',''"},
	"search_state":       {"jobs_in_state", "'c',-20000,'k',-5000,50,0,10,'','state2'"},
	"search_queue_state": {"jobs_of_q_state", "'c',-20000,'k',-5000,50,0,10,'q7','state2'"},
	"get_messages":       {"outbox_contract", "'c1',50"},
	"get_dead_letters":   {"dead_letters_", "'c',5,50"},
	"old_dead_letters":   {"dead_letters_age", "'c',5,50"},
}

// fill stores enough that reading whole tables does not pay.
const fill = `
INSERT INTO jobs (seq,ident,contract,scope,key,state,phase,order_time,due_at,run_id,lease_until,worker,runs,failures,open_deps,held,
		failed_deps,updated_at,started_at,settled_at,kind,queue,lane,owner,priority,lease,run_limit,parent,trace,created_at,listed,children,size,apart,definition,payload)
		SELECT n, sha256(n::text::bytea), 'c', '', n::text, 'state'||n%5, n%4, n, n, NULL, n, '', 0, 0, 0, 0, 0, n, 0, n,
	'', 'q'||n/4%20, n/4%20, 'o'||n%1000, n%3, 1000, 0, n%7*(n/100), '', n, -n, 0, n%20/19, 0, NULL, repeat('x',100)::bytea FROM generate_series(1,30000) n;
INSERT INTO events (seq,cause,prev,next,at,reason) SELECT n%10000, 'due', '', '', n, '' FROM generate_series(1,30000) n;
INSERT INTO edges SELECT n, n/2 FROM generate_series(1,20000) n;
INSERT INTO outbox (contract,scope,key,seq,cause,prev,next,at,reason) SELECT 'c'||n%3,'','',n,'due','','',n,'' FROM generate_series(1,20000) n;
INSERT INTO dead_letters (contract,cause,buried_at,job) SELECT 'c'||n%3,'due',n,'' FROM generate_series(1,20000) n;
INSERT INTO records SELECT 'k', n::text, 'o'||n%1000, '', n, n, n FROM generate_series(1,20000) n;
UPDATE jobs SET alias=ident WHERE seq%10=0;
ANALYZE records, jobs, events, edges, outbox, dead_letters;`

// TestPlans looks at the plan for given values and at the one PostgreSQL keeps
// for any: it may change from one to the other after some runs.
func TestPlans(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.db.Conn(t.Context()) // with the settings of the store's own
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	for _, text := range strings.Split(strings.TrimSuffix(fill, ";"), ";\n") {
		exec(text)
	}
	planned(t, conn, exec)
}

func planned(t *testing.T, conn *sql.Conn, exec func(string)) {
	for _, st := range sqlstore.Narrow {
		want := plans[st.Name]
		exec("PREPARE p AS " + dialect.Text(st))
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			exec("SET plan_cache_mode=" + mode)
			call := "p"
			if want.values != "" {
				call = fmt.Sprintf("p(%s)", want.values)
			}
			rows, err := conn.QueryContext(context.Background(), "EXPLAIN EXECUTE "+call)
			if err != nil {
				t.Fatalf("%s: %v", st.Name, err)
			}
			plan, line := "", ""
			for rows.Next() {
				if err := rows.Scan(&line); err != nil {
					t.Fatal(err)
				}
				plan += line + "\n"
			}
			if want.index == "" || !strings.Contains(plan, want.index) ||
				strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s, %s: does not use %q:\n%s", st.Name, mode, want.index, plan)
			}
			// A merge of ordered inputs has their order as its "Sort Key".
			if strings.Contains(strings.ReplaceAll(plan, "Sort Key", ""), "Sort") &&
				strings.Contains(dialect.Text(st), "LIMIT") {
				t.Errorf("%s, %s: sorts:\n%s", st.Name, mode, plan)
			}
		}
		exec("DEALLOCATE p")
	}
}
