package places

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/millrace/millrace/internal/object"
)

// TestOneOutageOneLine binds again and again while the objects are away: their part tells of that,
// and the binding says nothing more.
func TestOneOutageOneLine(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	objects, err := object.Open(t.Context(), object.Config{Bucket: "millrace",
		URL: "s3://?region=us-east-1&use_path_style=true&endpoint=http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	var log bytes.Buffer
	p := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Objects: objects})
	for range 2 {
		if p.try(t.Context(), nil) || p.Check() != nil {
			t.Error("it is known what cannot be known")
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", &log)
	}
}
