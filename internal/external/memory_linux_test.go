package external_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/external"
)

// G-TF-41 A command that wants more memory than its limit does not get it, nor do its children.
func TestMemory(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"itself":  "b'x' * (256 << 20)",
		"a child": "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'b\"x\" * (256 << 20)']))",
	} {
		w := newWorld(t)
		_, err := w.python(t, program, func(s *external.Settings) {
			s.Memory = 64 << 20
		}).Call(t.Context(), theCall("1"))
		var failure *external.Failure
		if !errors.As(err, &failure) || !strings.HasPrefix(failure.Message, "MemoryError") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	w := newWorld(t)
	if _, err := w.python(t, "b'x' * (8 << 20)", func(s *external.Settings) {
		s.Memory = 32 << 20
	}).Call(t.Context(), theCall("1")); err != nil {
		t.Errorf("within the limit: %v", err)
	}
}
