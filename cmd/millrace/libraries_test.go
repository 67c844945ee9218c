package main

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/testkit"
)

// TestLibrariesWriteToTheLog: what libraries say by themselves are lines of the log, and nothing of
// it reaches standard error.
func TestLibrariesWriteToTheLog(t *testing.T) {
	real, defaultLog, flags, out := os.Stderr, slog.Default(), log.Flags(), log.Writer()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	os.Stderr = file
	defer func() {
		os.Stderr = real
		slog.SetDefault(defaultLog)
		log.SetFlags(flags)
		log.SetOutput(out)
	}()
	journal := &testkit.LogBuffer{}
	end := captureLibraryLogs(cli.Process{Stderr: file},
		slog.New(slog.NewJSONHandler(journal, nil)))
	log.Print("by the default logger")
	otel.Handle(errors.New("by the tracing library"))
	fmt.Fprintln(os.Stderr, "by a library's own way")
	end()
	for name, members := range map[string]map[string]any{
		"log":          {"level": "WARN", "msg": "by the default logger"},
		"tracing":      {"level": "WARN", "error_message": "by the tracing library"},
		"os.Stderr":    {"level": "WARN", "line": "by a library's own way"},
		"of all lines": {"level": "WARN"},
	} {
		want := 1
		if name == "of all lines" {
			want = 3
		}
		if n := len(journal.Lines(t, members)); n != want {
			t.Errorf("%s: %d lines, want %d: %s", name, n, want, journal)
		}
	}
	if written, err := os.ReadFile(file.Name()); err != nil || len(written) > 0 {
		t.Errorf("standard error has %q: %v", written, err)
	}
	if os.Stderr != file {
		t.Error("standard error is not given back")
	}
}
