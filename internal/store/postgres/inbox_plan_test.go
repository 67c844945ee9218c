package postgres

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// inboxPlans names the index that each statement of the inbox must use, and values for its
// parameters.
var inboxPlans = map[*sqlstore.Statement]struct{ index, values string }{
	inboxDue:       {"inbox_transactions_due", "500"},
	claimInbox:     {"inbox_transactions_due", "500,50,900,'{c7}',400"},
	readInbox:      {"inbox_waiting", "'{7,8,9}',50,100000"},
	lockInbox:      {"inbox_pkey", "'{7,8,9}'"},
	updateInbox:    {"inbox_pkey", "'{7,8}','{submitted,refused}','{1,0}','{a,b}','{d,c}',9"},
	endInbox:       {"inbox_transactions_pkey", "'{7,8}'"},
	delayInbox:     {"inbox_transactions_pkey", "'{7,8}','{1,2}','{1,2}'"},
	retryInbox:     {"inbox_pkey", "7,9"},
	deleteInbox:    {"inbox_pkey", "7"},
	getInbox:       {"inbox_id_key", "'00000000-0000-4000-8000-000000000000'"},
	getInboxLocked: {"inbox_id_key", "'00000000-0000-4000-8000-000000000000'"},
	pruneInbox:     {"inbox_age", "500,50"},
	countInbox:     {"inbox_state", "50"},

	inboxPage[""]:                  {"inbox_pkey", "9000,5,'c7',50"},
	inboxPage[job.InboxRefused]:    {"inbox_state", "9000,5,'c7',50"},
	inboxScanEnd[""]:               {"inbox_pkey", "9000,50"},
	inboxScanEnd["refused"]:        {"inbox_state", "9000,50"},
	inboxPage[job.InboxWaiting]:    {"inbox_state", "9000,5,'',50"},
	inboxScanEnd["submitted"]:      {"inbox_pkey", "9000,50"},
	inboxPage["submitted"]:         {"inbox_pkey", "9000,5,'',50"},
	inboxScanEnd[job.InboxWaiting]: {"inbox_state", "9000,50"},
}

const fillInbox = `
INSERT INTO inbox_transactions (xid,began,due_at) SELECT n,n,n FROM generate_series(1,5000) n;
INSERT INTO inbox (transaction,state,contract,owner,job_type,request,producer,created_at,finished_at)
	SELECT n/4, (ARRAY['waiting','refused','submitted','submitted'])[1+n%4], 'c'||n%10, '', '',
	repeat('x',200), 'p', n, CASE n%4 WHEN 0 THEN NULL ELSE n END FROM generate_series(1,20000) n;
ANALYZE inbox, inbox_transactions`

// The statements of the inbox find their rows by an index, whatever it holds, and also where vacuum
// has found it empty.
func TestInboxPlans(t *testing.T) {
	t.Parallel()
	conn, exec := filled(t)
	for text := range strings.SplitSeq(fillInbox, ";\n") {
		exec(text)
	}
	check := func(what string) {
		for st, want := range inboxPlans {
			exec("PREPARE p AS " + dialect.Text(st))
			for _, mode := range planModes {
				exec("SET plan_cache_mode=" + mode)
				plan := explained(t, conn, want.values)
				text := strings.Join(plan, "\n")
				if !strings.Contains(text, want.index) || strings.Contains(text, "Seq Scan") {
					t.Errorf("%s, %s, %s: does not use %q:\n%s", what, st.Name, mode, want.index,
						text)
				}
				for scan := range unbounded(plan) {
					if !isPage(st) {
						t.Errorf("%s, %s, %s: %q reads all:\n%s", what, st.Name, mode, scan, text)
					}
				}
			}
			exec("DEALLOCATE p")
		}
	}
	check("full")
	for _, table := range []string{"inbox", "inbox_transactions"} {
		exec("DELETE FROM " + table)
		exec("ANALYZE " + table) // which leaves the pages
	}
	check("found empty")
}

// isPage reports whether a statement reads an index up to its limit.
func isPage(st *sqlstore.Statement) bool { return strings.Contains(st.SQL, "LIMIT") }
