package httpapi

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"unicode/utf8"
)

// FuzzProblem: whatever an error says, and whatever id a caller gives a request, a problem document
// is JSON that says the same.
func FuzzProblem(f *testing.F) {
	f.Add("VALIDATION_ERROR", "Invalid", "queue: must not be empty", "id-1")
	f.Add("", "\x00\x1f\u2028", "a \"quoted\" \\ text </script>", "\r\nSet-Cookie: a=b")
	f.Add("\xff", "\ud7ff\ue000", "\U0001F600\xc3", "")
	f.Fuzz(func(t *testing.T, code, title, detail, id string) {
		w := httptest.NewRecorder()
		c := &Call{ResponseWriter: w, Request: httptest.NewRequest("GET", "/", nil),
			router: &Router{}}
		c.Request.Header["X-Request-Id"] = []string{id}
		row := ErrorRow{Code: code, Title: title, Status: 400}
		c.SendProblem("relay", Answer{row, detail})
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 6 {
			t.Fatalf("%q: %v", w.Body, err)
		}
		for name, want := range map[string]string{"code": code, "title": title, "detail": detail,
			"type": "urn:millrace:relay:" + code, "instance": c.RequestID()} {
			if text, _ := got[name].(string); utf8.ValidString(want) && text != want {
				t.Fatalf("%s is %q, want %q", name, text, want)
			}
		}
	})
}
