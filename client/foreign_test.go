package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/client"
)

// The answer of another web server is recognised, and no page is part of an error.
func TestForeignServer(t *testing.T) {
	t.Parallel()
	const page = "\n<!DOCTYPE html><html><body>another server</body></html>"
	for name, tt := range map[string]struct {
		status    int
		body      string
		want, not error
	}{
		"a page that is not found":     {404, page, client.ErrNotMillrace, client.ErrRetryable},
		"a method that is not known":   {501, page, client.ErrNotMillrace, client.ErrRetryable},
		"a page for whatever is asked": {200, page, client.ErrNotMillrace, client.ErrRetryable},
		"a server in Go":               {404, "404 page not found\n", client.ErrNotMillrace, nil},
		"a proxy whose server is unavailable": {503, page, client.ErrRetryable,
			client.ErrNotMillrace},
		"a job that is not found": {404, "there is no such job", client.ErrNotFound,
			client.ErrNotMillrace},
		"a path that the server has not": {404, "there is nothing at this path", client.ErrNotFound,
			client.ErrNotMillrace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			})
			c := mustClient(t, client.Config{BaseURL: "http://other.test",
				Retry:      client.Retry{MaxTries: 1},
				HTTPClient: &http.Client{Transport: direct{handler}}})
			_, read := c.TaskFlow().Get(t.Context(), "01a20658-0d9c-715c-b3ba-d56747d3ccbd")
			changed := c.Relay().Enqueue(t.Context(),
				[]client.RelaySpec{relaySpec("q", "1")}, client.RelayIgnore)
			for _, err := range []error{read, changed} {
				if !errors.Is(err, tt.want) || (tt.not != nil && errors.Is(err, tt.not)) ||
					strings.Contains(err.Error(), "<") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// Where no server listens, the error asks whether it runs and says what starts one.
func TestNoServer(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	relay := mustClient(t, client.Config{BaseURL: closed.URL,
		Retry: client.Retry{MaxTries: 1}}).Relay()
	err := relay.Delete(t.Context(), "q", "1")
	const hint = "refused; is the server running? `millrace serve` starts one"
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.HasSuffix(err.Error(), hint) {
		t.Errorf("got %v", err)
	}
}
