package testkit

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// CheckErrorTable checks that a contract's table answers every error in one way: each kind of
// job.Error is in exactly one row, no status of a StatusError and no pair of code and status in
// two, and every status is one of errors.
func CheckErrorTable(t *testing.T, table httpapi.ErrorTable) {
	t.Helper()
	kinds, statuses, rows := map[job.Kind]int{}, map[int]int{}, map[string]int{}
	others := 0
	for i := range table {
		row := &table[i]
		rows[row.Code+" "+http.StatusText(row.Status)]++
		for _, k := range row.Kinds {
			kinds[k]++
		}
		for _, s := range row.Statuses {
			statuses[s]++
		}
		if row.OtherStatuses {
			others++
		}
		if row.Status < 400 || row.Status > 599 {
			t.Errorf("row %d %q has status %d, which is none of errors", i, row.Code, row.Status)
		}
	}
	for _, k := range job.Kinds() {
		if kinds[k] != 1 {
			t.Errorf("kind %q is in %d rows, want 1", k, kinds[k])
		}
	}
	for status, n := range statuses {
		if n > 1 {
			t.Errorf("status %d is in %d rows", status, n)
		}
	}
	for row, n := range rows {
		if n > 1 {
			t.Errorf("there are %d rows %q", n, row)
		}
	}
	if others > 1 {
		t.Errorf("%d rows take the statuses that no row lists", others)
	}
}
