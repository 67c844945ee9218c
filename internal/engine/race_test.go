//go:build race

package engine_test

// slow says that the race detector makes everything several times as slow.
const slow = true
