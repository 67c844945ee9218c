package httpapi_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 29, 12, 0, 0, 123456000, time.UTC)
	got, key, ok := httpapi.ParseCursor(httpapi.FormatCursor(at, "a.b"))
	if !ok || !got.Equal(at) || key != "a.b" {
		t.Errorf("read %s %q %t", got, key, ok)
	}
	for _, text := range []string{"", "%", ".", "x.a", "-1.a", "0.a", "9007199254740993.a",
		"99999999999999999999.a"} {
		if _, _, ok := httpapi.ParseCursor(base64.RawURLEncoding.EncodeToString([]byte(text))); ok {
			t.Errorf("%q is read as a cursor", text)
		}
	}
	if _, _, ok := httpapi.ParseCursor("not base64!"); ok {
		t.Error("what is no base64 is read as a cursor")
	}
}
