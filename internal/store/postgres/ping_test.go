package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// TestShouldPing: connections of transactions, which find a lost one by themselves, are not pinged;
// others are after they were idle.
func TestShouldPing(t *testing.T) {
	t.Parallel()
	ofTransaction := context.WithValue(t.Context(), noPing{}, true)
	for _, tt := range []struct {
		ctx  context.Context
		idle time.Duration
		want bool
	}{
		{t.Context(), 10 * time.Millisecond, false},
		{t.Context(), time.Minute, true},
		{ofTransaction, time.Minute, false},
	} {
		got := shouldPing(tt.ctx, stdlib.ShouldPingParams{IdleDuration: tt.idle})
		if got != tt.want {
			t.Errorf("after %v idle: %v, want %v", tt.idle, got, tt.want)
		}
	}
}
