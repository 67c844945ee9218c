package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// The codes of errors of the admin API (G-AD-01).
const (
	// AdminCodeReadOnly means that the token only reads.
	AdminCodeReadOnly = "READ_ONLY"
	// AdminCodeForbidden means that no token permits the request.
	AdminCodeForbidden = "FORBIDDEN"
	// AdminCodeConflict means that the current state does not permit the call.
	AdminCodeConflict = "CONFLICT"
	// AdminCodeNotAllowed means that the state of a job does not allow the action.
	AdminCodeNotAllowed = "NOT_ALLOWED"
)

// Admin is the admin API, for operators. All of its calls need the operator's token; for those that
// change nothing the read token is enough. Every change becomes an entry of the audit.
type Admin struct {
	client *Client
	actor  string
}

// Admin returns the admin API on this client. [Config.Token] must be the operator's token or the
// read token.
func (c *Client) Admin() *Admin { return &Admin{client: c} }

// WithActor returns the API with a name for the audit, of the person or program that uses the token
// (AD-006). The name has at most 100 printable ASCII characters; empty means none.
func (a *Admin) WithActor(name string) *Admin { return &Admin{client: a.client, actor: name} }

// AdminLoginCode is a one-time code that logs a browser in.
type AdminLoginCode struct {
	// Code is the code itself. It is valid for one login.
	Code string `json:"code"`
	// Path is the path of the page that logs in with the code, to be appended to the server's
	// address.
	Path string `json:"path"`
	// ExpiresAt is when the code expires, in UTC.
	ExpiresAt time.Time `json:"expires_at"`
}

// RotateToken replaces the operator's token and returns the new one (AD-002). Later calls of a
// still send the old one, so make a new client. The new token is in force on all nodes within two
// seconds, and all sessions of operators end.
//
// Errors: [ErrConflict] where the server's setting operator.token gives the token;
// [ErrUnauthorized]. It is tried once. A try whose answer was lost ([Error.Uncertain]) may have
// replaced the token; the new one is in the server's data directory.
func (a *Admin) RotateToken(ctx context.Context) (token string, err error) {
	got, err := adminCall[struct {
		Token string `json:"token"`
	}](ctx, a, call{
		op:        "admin rotate token",
		method:    http.MethodPost,
		path:      "/admin/v1/token/rotate",
		singleTry: true,
	})
	return got.Token, err
}

// CreateLoginCode creates a one-time code that logs a browser in to the console (AD-003).
//
// Errors: [ErrUnauthorized]. A repeat creates another code.
func (a *Admin) CreateLoginCode(ctx context.Context) (AdminLoginCode, error) {
	return adminCall[AdminLoginCode](ctx, a, call{
		op:     "admin create login code",
		method: http.MethodPost,
		path:   "/admin/v1/login-codes",
		accept: []int{http.StatusCreated},
	})
}

// Audit iterates over the entries of the audit, the newest first (AD-006). It ends with the first
// error.
func (a *Admin) Audit(ctx context.Context, f AdminAuditFilter) iter.Seq2[AdminAuditEntry, error] {
	query := url.Values{}
	setText(query, "action", f.Action)
	setText(query, "target", f.Target)
	setText(query, "actor", f.Actor)
	setTime(query, "from", f.From)
	setTime(query, "to", f.To)
	return adminPages[AdminAuditEntry](ctx, a, "admin audit", "/admin/v1/audit", query,
		f.PageSize)
}

// AdminContract is a contract that is served by the node that answers.
type AdminContract struct {
	Contract string `json:"contract"`
	// States are the states of its jobs, in its own words and in alphabetical order.
	States []string `json:"states"`
}

// Contracts iterates over the contracts that are served by the node that answers, by name. It ends
// with the first error.
func (a *Admin) Contracts(ctx context.Context) iter.Seq2[AdminContract, error] {
	return adminPages[AdminContract](ctx, a, "admin contracts", "/admin/v1/contracts", nil, 500)
}

// Settings iterates over the settings of the node that answers, by key (AD-062). It ends with the
// first error.
func (a *Admin) Settings(ctx context.Context) iter.Seq2[AdminSetting, error] {
	return adminPages[AdminSetting](ctx, a, "admin settings", "/admin/v1/settings", nil, 500)
}

// Health checks the components on which the node that answers depends (AD-062). A component that
// fails is no error.
func (a *Admin) Health(ctx context.Context) (AdminHealth, error) {
	return adminCall[AdminHealth](ctx, a, call{op: "admin health", path: "/admin/v1/health"})
}

// adminCall makes a call whose answer is JSON. It is a read with one accepted status, 200, unless c
// says otherwise.
func adminCall[T any](ctx context.Context, a *Admin, c call) (T, error) {
	if c.method == "" {
		c.method, c.readOnly = http.MethodGet, true
	}
	if c.accept == nil {
		c.accept = []int{http.StatusOK}
	}
	c.header = a.header()
	return doJSON[T](ctx, a.client, c)
}

// header returns the header of every call.
func (a *Admin) header() http.Header {
	if a.actor == "" {
		return nil
	}
	return http.Header{"Millrace-Actor": {a.actor}}
}

// adminPages iterates over a list. A page is the last one if it has no cursor.
func adminPages[T any](ctx context.Context, a *Admin, op, path string, query url.Values,
	size int) iter.Seq2[T, error] {
	return pages(query, size, func(query url.Values) (page[T], error) {
		got, err := adminCall[page[T]](ctx, a, call{op: op, path: path, query: query.Encode()})
		got.More = got.Next != ""
		return got, err
	})
}

// setText adds a query parameter that is not empty.
func setText(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// setTime adds a query parameter that is not the zero time.
func setTime(query url.Values, name string, value time.Time) {
	if !value.IsZero() {
		query.Set(name, value.UTC().Format(time.RFC3339Nano))
	}
}
