package setting

import "time"

// The bounds of durations and numbers that have no bound of their own.
const (
	TenYears = 10 * 365 * 24 * time.Hour
	Billion  = 1_000_000_000
)
