package wordcount

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

// routes are the routes of the API. Action is the name of a route in the log and in traces.
func (w *WordCount) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/wordcount/v1/texts", Action: "submit", ReadsBody: true,
			Handle: w.submitText},
		{Method: http.MethodGet, Pattern: "/wordcount/v1/texts/{id}", Action: "get", Handle: w.getText},
	}
}
