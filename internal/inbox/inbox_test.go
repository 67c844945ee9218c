package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

const relayJob = `{"queue":"q","id":"%s","timeout":30,"payload":{"a":1}}`

// TX-001, TX-004: a request that is submitted in a transaction is there after its commit and not
// before, is gone with a rollback, and the view tells what has become of it.
func TestSubmitInATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, kept := w.begin(), w.begin()
	lost := w.submit(gone, "relay", fmt.Sprintf(relayJob, "gone"))
	id := w.submit(kept, "relay", fmt.Sprintf(relayJob, "kept"))
	part := w.submit(kept, "taskflow", `{"name":"n","queue":"q","payload":{"b":2}}`)
	w.run(w)
	if all := w.jobs("relay"); len(all) > 0 {
		t.Errorf("TX-001 submitted before the commit: %v", all)
	}
	w.must(gone.Rollback())
	w.must(kept.Commit())
	if s := w.see(id); s != (seen{"waiting", "relay", "", ""}) {
		t.Errorf("TX-004 a request that waits is %+v", s)
	}
	w.run(w)
	w.run(w)
	if all := w.jobs("relay"); !slices.Equal(all, []string{"kept"}) {
		t.Errorf("TX-001 the jobs are %v", all)
	}
	made := w.jobs("taskflow")
	if len(made) != 1 || w.see(part) != (seen{"submitted", "taskflow", made[0], ""}) {
		t.Errorf("TX-004 a request that was submitted is %+v, its job %v", w.see(part), made)
	}
	if s := w.see(id); s != (seen{"submitted", "relay", "kept", ""}) {
		t.Errorf("TX-004 a request that was submitted is %+v", s)
	}
	if s := w.see(lost); s != (seen{}) {
		t.Errorf("TX-001 a request that was rolled back is %+v", s)
	}
	j, err := w.engine.Get(context.Background(), job.ID{JobType: "relay", Scope: "q", Key: "kept"})
	if err != nil || string(j.Payload) != `{"a":1}` || w.request(id).Job != j.Seq {
		t.Errorf("TX-001 the job is %+v: %v", j, err)
	}
	var left int
	w.must(w.db.QueryRow("SELECT count(*) FROM inbox_transactions").Scan(&left))
	if left != 0 {
		t.Errorf("%d transactions are left", left)
	}
}

// TX-002: the requests of a transaction are submitted in their order, also where they are more than
// one batch, a savepoint was rolled back, one is refused, and two nodes share the work.
func TestOrderOfATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lines, each = 6, 700
	var all sync.WaitGroup
	for l := range lines {
		all.Go(func() {
			tx := w.begin()
			for i := range each {
				if i%100 == 50 {
					_, err := tx.Exec("SAVEPOINT s")
					w.must(err)
					w.submit(tx, "relay", fmt.Sprintf(relayJob, "undone"))
					_, err = tx.Exec("ROLLBACK TO SAVEPOINT s")
					w.must(err)
				}
				if i%100 == 70 {
					w.submit(tx, "relay", `{"queue":""}`)
				}
				contract, text := "relay", fmt.Sprintf(relayJob, fmt.Sprintf("%d-%03d", l, i))
				if i%3 == 0 {
					contract = "taskflow"
					text = fmt.Sprintf(`{"name":"n","queue":"q","payload":"%d-%03d"}`, l, i)
				}
				w.submit(tx, contract, text)
			}
			w.must(tx.Commit())
		})
	}
	all.Wait()
	other := w.newNode(nodeConfig{})
	for _, n := range []*node{w.node, other} {
		all.Go(func() { n.run(w) })
	}
	all.Wait()
	if got := len(w.jobs("relay")) + len(w.jobs("taskflow")); got != lines*each {
		t.Fatalf("TX-002 %d jobs, want %d", got, lines*each)
	}
	for _, contract := range []string{"relay", "taskflow"} {
		rows, err := w.db.Query(`SELECT convert_from(payload,'UTF8'),key FROM jobs
			WHERE contract=$1 ORDER BY seq`, contract)
		w.must(err)
		defer rows.Close()
		last := map[string]string{}
		for rows.Next() {
			var payload, name string
			w.must(rows.Scan(&payload, &name))
			if contract == "taskflow" {
				name = strings.Trim(payload, `"`)
			}
			line := name[:1]
			if name <= last[line] {
				t.Fatalf("TX-002 %s: %s comes after %s", contract, name, last[line])
			}
			last[line] = name
		}
		w.must(rows.Err())
	}
}
