package work

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// answers is a transport whose requests end with these errors in turn; nil is an answer 204.
type answers []error

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	err := (*a)[0]
	*a = (*a)[1:]
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// A server that does not speak HTTP, such as a database, stops the worker when none of its first
// polls got anything else; in a later outage the worker goes on.
func TestPollGate_notHTTP(t *testing.T) {
	t.Parallel()
	malformed := errors.New(`net/http: malformed HTTP response "\x00"`)
	for name, tt := range map[string]struct {
		polls answers
		stops bool
	}{
		"a database":       {slices.Repeat(answers{io.EOF}, maxNotHTTP), true},
		"another protocol": {slices.Repeat(answers{malformed}, maxNotHTTP), true},
		"a few":            {slices.Repeat(answers{io.EOF}, maxNotHTTP-1), false},
		"a later outage":   {append(answers{nil}, slices.Repeat(answers{io.EOF}, 20)...), false},
		"a start": {append(answers{errors.New("connection refused")},
			slices.Repeat(answers{io.EOF}, 20)...), false},
	} {
		stopped := false
		polls := tt.polls
		g := &pollGate{polls: relayPolls{}, next: &polls, stop: func() { stopped = true }}
		for range tt.polls {
			_, _ = g.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
		}
		err := g.stopError()
		if stopped != tt.stops || (err != nil) != tt.stops {
			t.Errorf("%s: stopped: %v, %v", name, stopped, err)
		}
		if tt.stops && (cli.ExitCode(err) != cli.ExitServer ||
			!strings.Contains(err.Error(), "does not speak HTTP")) {
			t.Errorf("%s: exit code %d: %v", name, cli.ExitCode(err), err)
		}
	}
}
