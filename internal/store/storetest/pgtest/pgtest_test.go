package pgtest

import (
	"testing"
)

// TestDeadlockRunsAgain has the first statements end as the victim of a deadlock does. A sequence
// counts them, as it keeps what a transaction that failed has drawn.
func TestDeadlockRunsAgain(t *testing.T) {
	t.Parallel()
	url := URL(t)
	run(t, url, "CREATE SEQUENCE draws")
	run(t, url, "DO $$ BEGIN IF nextval('draws') < 3 THEN "+
		"RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF; END $$")
	var n int
	if err := DB(t, url).QueryRow("SELECT last_value FROM draws").Scan(&n); err != nil || n != 3 {
		t.Errorf("the statement ran %d times, want 3: %v", n, err)
	}
}
