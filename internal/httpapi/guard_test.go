package httpapi_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// TestGuard checks that a guard comes before the checks of the router, that its error is the
// answer, and that the handler sees what it has set, also with a timeout.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Minute} {
		handled := 0
		router := httpapi.Router{
			Name: "guarded", Prefixes: []string{"/guarded/"}, BodyLimit: 8, Timeout: timeout,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), WriteError: writeErrorKind,
			Routes: []httpapi.Route{{Method: http.MethodPost, Pattern: "/guarded/echo",
				Guard: func(c *httpapi.Call) (err error) {
					if c.Request.Header.Get("Authorization") == "" {
						return &job.Error{Kind: job.Invalid, Msg: "who?"}
					}
					c.Identity = "ann"
					c.Content, err = c.Body()
					return errors.Join(err, c.CheckQuery())
				},
				Handle: func(c *httpapi.Call) error {
					handled++
					c.Send(http.StatusOK, httpapi.Text,
						[]byte(c.Identity.(string)+" "+string(c.Content)))
					return nil
				}}},
		}
		handler := router.MustMount().Handler
		serve := func(path, body, authorization string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			if authorization != "" {
				r.Header.Set("Authorization", authorization)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		}
		w := serve("/guarded/echo?x=1", "more than eight bytes", "")
		if w.Code == http.StatusOK || w.Code == http.StatusRequestEntityTooLarge ||
			!strings.Contains(w.Body.String(), "invalid") || handled != 0 {
			t.Errorf("without a key: %d %q after %d calls", w.Code, w.Body, handled)
		}
		if w := serve("/guarded/echo?x=1", "a", "key"); w.Code == http.StatusOK || handled != 0 {
			t.Errorf("with a wrong query: %d %q after %d calls", w.Code, w.Body, handled)
		}
		if w := serve("/guarded/echo", "abc", "key"); w.Body.String() != "ann abc" {
			t.Errorf("with a key: %d %q", w.Code, w.Body)
		}
	}
}
