package main

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/engine"
)

// TestBulkRetries shows that the bulk operation that is measured retries every job that failed.
func TestBulkRetries(t *testing.T) {
	s, err := openStore(t.Context(), nil, filepath.Join(t.TempDir(), "bulk.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := newEngine(s)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ops, err := newBulk(e)
	if err := errors.Join(err, e.Register(engine.JobType{Name: failedJobs,
		Machine: machineFailed})); err != nil {
		t.Fatal(err)
	}
	if err := submitFailed(t.Context(), e, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := retryFailed(t.Context(), ops, 50); err != nil {
		t.Error(err)
	}
}
