package sqlite

import "testing"

// TestRowsOfNext proves that the statements of a set have as many rows as pay, and no more
// parameters than SQLite takes.
func TestRowsOfNext(t *testing.T) {
	for _, tt := range []struct{ left, columns, want int }{{1, 2, 1}, {3, 2, 1}, {4, 2, 4},
		{63, 2, 32}, {64, 40, 64}, {1023, 2, 64}, {1024, 2, largeBatchRows},
		{200_000, 2, largeBatchRows}, {200_000, 40, 64}} {
		if got := nextBatchRows(tt.left, tt.columns); got != tt.want {
			t.Errorf("of %d rows with %d columns the next statement has %d, want %d", tt.left,
				tt.columns, got, tt.want)
		}
	}
}
