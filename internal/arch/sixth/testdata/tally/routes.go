package tally

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

// routes are the routes of the API. Action is the name of a route in the log and in traces.
func (t *Tally) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/tally/v1/texts", Action: "submit", ReadsBody: true,
			Handle: t.submitText},
		{Method: http.MethodGet, Pattern: "/tally/v1/texts/{id}", Action: "get", Handle: t.getText},
	}
}
