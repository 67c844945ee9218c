package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// TestAuthorize checks that Authorize decides before anything of a request is answered, also where
// no route matches, and that a strict router refuses unknown parameters of every route.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	var routes []string
	router := httpapi.Router{
		Name: "strict", Prefixes: []string{"/strict/"}, BodyLimit: 8, StrictQuery: true,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), WriteError: writeErrorKind,
		Authorize: func(c *httpapi.Call) error {
			if c.Route != nil {
				routes = append(routes, c.Route.Action)
			}
			if c.Request.Header.Get("Authorization") == "" {
				return &job.Error{Kind: job.Conflict, Msg: "who?"}
			}
			c.Identity = "ann"
			return nil
		},
		Routes: []httpapi.Route{{Method: http.MethodGet, Pattern: "/strict/name", Action: "name",
			Handle: func(c *httpapi.Call) error {
				c.Send(http.StatusOK, httpapi.Text, []byte(c.Identity.(string)))
				return nil
			}}},
	}
	handler := router.MustMount().Handler
	for _, tt := range []struct{ path, authorization, want string }{
		{"/strict/name", "", "conflict"},
		{"/strict/name?x=1", "", "conflict"},
		{"/strict/none", "", "conflict"},
		{"/strict/name", "key", "ann"},
		{"/strict/name?x=1", "key", "malformed"},
		{"/strict/none", "key", "nothing at this path"},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		if tt.authorization != "" {
			r.Header.Set("Authorization", tt.authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s as %q: got %q, want %q", tt.path, tt.authorization, w.Body, tt.want)
		}
	}
	if got := strings.Join(routes, " "); got != "name name name name" {
		t.Errorf("the routes that Authorize saw are %q", got)
	}
}
