package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// These routes show and change clients (package account). Of a key the id, the times and the state
// are shown, and never the secret.

// clientRoutes are the routes of clients.
func (a *API) clientRoutes() []route {
	const one = apiPrefix + "/clients/{id}"
	return []route{
		{method: "GET", pattern: apiPrefix + "/clients", action: "client.list",
			handle: a.listClients, query: httpapi.PageQuery()},
		{method: "GET", pattern: one, action: "client.show", handle: a.showClient},
		{method: "PATCH", pattern: one, action: "client.set", handle: a.setClient,
			target: ClientTarget, body: true},
		{method: "POST", pattern: one + "/keys/{key_id}/revoke", action: "client.revoke_key",
			handle: a.revokeKey, target: ClientTarget, body: true},
	}
}

// ClientTarget names the client of the path for the audit, in whatever case its id was sent.
func ClientTarget(c *httpapi.Call) string { return "client:" + pathUUID(c, "id") }

// pathUUID returns an id of the path in its canonical text; a text that is no id stays as it is.
func pathUUID(c *httpapi.Call, name string) string {
	text := c.PathValue(name)
	if id, ok := uuids.Parse(text); ok {
		return id
	}
	return text
}

// clientContract returns the contract of this node that has clients, nil where none has.
func (a *API) clientContract() *contract.Contract {
	for _, c := range a.Contracts {
		if c.Accounts != nil {
			return c
		}
	}
	return nil
}

// HasClients reports whether a contract of this node has clients.
func (a *API) HasClients() bool { return a.clientContract() != nil }

// needClients returns the contract of this node that has clients, or NotFound.
func (a *API) needClients() (*contract.Contract, error) {
	if c := a.clientContract(); c != nil {
		return c, nil
	}
	return nil, &job.Error{Kind: job.NotFound, Op: "admin.client",
		Msg: "there is no such client: no contract of this node has any"}
}

// How many jobs of a client are counted, in the list and for one client.
const (
	maxListedJobs = 200
	maxShownJobs  = 100_000
)

var clientPages = newPages(nameCursor("clients"))

// listClients is GET /admin/v1/clients (AD-053): in the order in which they were made.
func (a *API) listClients(c *httpapi.Call) error {
	page, next, err := a.ListClients(c)
	if err != nil {
		return err
	}
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		writeClient(o, &page[i].Status, page[i].Jobs, maxListedJobs)
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// Client is a client with how many jobs it has; above maxListedJobs it is not counted further.
type Client struct {
	account.Status
	Jobs int
}

// ManyJobs reports whether the client has more jobs than were counted.
func (s *Client) ManyJobs() bool { return s.Jobs > maxListedJobs }

// ListClients returns the clients that the query of a call asks for, and the cursor of the next
// page.
func (a *API) ListClients(c *httpapi.Call) (page []Client, next string, err error) {
	limit, after, err := clientPages.Read(c)
	if err != nil {
		return nil, "", err
	}
	served := a.clientContract()
	if served == nil {
		return nil, "", nil
	}
	found, err := served.Accounts.Statuses(c.Context(), after, limit+1)
	if err != nil {
		return nil, "", err
	}
	if len(found) > limit {
		found = found[:limit]
		next = clientPages.Cursor.Format(found[limit-1].ID)
	}
	jobs, err := a.countJobs(c.Context(), served, found, maxListedJobs)
	if err != nil {
		return nil, "", err
	}
	for i := range found {
		page = append(page, Client{found[i], jobs[i]})
	}
	return page, next, nil
}

// showClient is GET /admin/v1/clients/{id}.
func (a *API) showClient(c *httpapi.Call) error {
	served, err := a.needClients()
	if err != nil {
		return err
	}
	return a.sendClient(c, served)
}

// countJobs counts the jobs of clients; a count above limit ends there.
func (a *API) countJobs(ctx context.Context, served *contract.Contract, clients []account.Status,
	limit int) ([]int, error) {
	owners := make([]string, len(clients))
	for i := range clients {
		owners[i] = clients[i].ID
	}
	return a.Engine.CountOwned(ctx, served.Name, owners, limit+1)
}

// sendClient answers the client of the path as it is now.
func (a *API) sendClient(c *httpapi.Call, served *contract.Contract) error {
	s, err := a.client(c, served, maxShownJobs)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	writeClient(&o, &s.Status, s.Jobs, maxShownJobs)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// client returns the client of the path, whose jobs are counted up to limit.
func (a *API) client(c *httpapi.Call, served *contract.Contract, limit int) (s Client, err error) {
	if s.Status, err = served.Accounts.Status(c.Context(), c.PathValue("id")); err != nil {
		return s, err
	}
	jobs, err := a.countJobs(c.Context(), served, []account.Status{s.Status}, limit)
	if err != nil {
		return s, err
	}
	s.Jobs = jobs[0]
	return s, nil
}

// PathClient returns the client of the path of a call.
func (a *API) PathClient(c *httpapi.Call) (Client, error) {
	served, err := a.needClients()
	if err != nil {
		return Client{}, err
	}
	return a.client(c, served, maxListedJobs)
}

// writeClient writes the members of a client with some jobs, which are counted up to limit.
func writeClient(o *strictjson.Object, s *account.Status, jobs, limit int) {
	o.Text("id", s.ID)
	o.Time("created_at", s.CreatedAt)
	o.Objects("keys", len(s.Keys), func(i int, o *strictjson.Object) {
		k := &s.Keys[i]
		o.Text("id", k.ID)
		o.Text("state", k.State(s.At))
		o.Time("created_at", k.CreatedAt)
		o.Time("expires_at", k.ExpiresAt)
		o.Time("revoked_at", k.RevokedAt)
	})
	o.Bool("more_keys", s.MoreKeys)
	o.Object("jobs", func(o *strictjson.Object) {
		if jobs > limit {
			o.Int("at_least", int64(limit))
			return
		}
		o.Int("count", int64(jobs))
	})
	writeLimit(o, "rate_limit_per_minute", "rate_used", s.Limits.RatePerMinute, s.RateUsed)
	writeLimit(o, "quota_per_day", "quota_used", s.Limits.QuotaPerDay, s.QuotaUsed)
	own := []string{}
	if s.Own.RatePerMinute != nil {
		own = append(own, "rate_limit_per_minute")
	}
	if s.Own.QuotaPerDay != nil {
		own = append(own, "quota_per_day")
	}
	o.Texts("own_limits", own)
}

// writeLimit writes a limit and how much of it is used, both null where there is no limit: then
// nothing is counted.
func writeLimit(o *strictjson.Object, name, usedName string, limit, used int) {
	if limit == 0 {
		o.Null(name)
		o.Null(usedName)
		return
	}
	o.Int(name, int64(limit))
	o.Int(usedName, int64(used))
}

// maxClientLimit bounds the limits of a client, as it does those of the settings.
const maxClientLimit = 1_000_000_000

// setClient is PATCH /admin/v1/clients/{id} (AD-053). null takes a limit of the client's own away,
// so that the one of the settings is in force; 0 is no limit.
func (a *API) setClient(c *httpapi.Call) error {
	body, err := readMembers(c, "rate_limit_per_minute", "quota_per_day")
	if err != nil {
		return err
	}
	members := map[string]*int{}
	for name, value := range strictjson.Members(body) {
		members[string(name)] = nil
		if strictjson.IsNull(value) {
			continue
		}
		n, err := readLimit(string(name), value, maxClientLimit)
		if err != nil {
			return err
		}
		members[string(name)] = &n
	}
	if len(members) == 0 {
		return invalid("the body names nothing to set")
	}
	if err := a.PatchClient(c, members); err != nil {
		return err
	}
	return a.sendClient(c, a.clientContract())
}

// PatchClient sets limits of the client of the path of a call, by the names of their members; nil
// takes one of the client's own away.
func (a *API) PatchClient(c *httpapi.Call, members map[string]*int) error {
	served, err := a.needClients()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if n := members[name]; n != nil && (*n < 0 || *n > maxClientLimit) {
			return limitError(name, maxClientLimit)
		}
	}
	return served.Accounts.SetLimits(c.Context(), c.PathValue("id"), func(l *account.OwnLimits) {
		if n, ok := members["rate_limit_per_minute"]; ok {
			l.RatePerMinute = n
		}
		if n, ok := members["quota_per_day"]; ok {
			l.QuotaPerDay = n
		}
	}, func(w engine.RecordWriter, before, after account.OwnLimits) error {
		return a.record(w, c, clientState(before), clientState(after))
	})
}

// clientState is what a client has of its own in the audit.
type clientState struct {
	RatePerMinute *int `json:"rate_limit_per_minute"`
	QuotaPerDay   *int `json:"quota_per_day"`
}

// revokeKey is POST /admin/v1/clients/{id}/keys/{key_id}/revoke. A key that is revoked stays so,
// without an entry in the audit.
func (a *API) revokeKey(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	if err := a.RevokeKey(c); err != nil {
		return err
	}
	return a.sendClient(c, a.clientContract())
}

// RevokeKey revokes the key of the path of a call.
func (a *API) RevokeKey(c *httpapi.Call) error {
	served, err := a.needClients()
	if err != nil {
		return err
	}
	keyID := pathUUID(c, "key_id")
	return served.Accounts.RevokeAny(c.Context(), c.PathValue("id"), keyID,
		func(w engine.RecordWriter) error {
			return a.record(w, c, nil, keyState{keyID, account.KeyRevoked})
		})
}

// keyState is a key in the audit.
type keyState struct {
	Key   string `json:"key"`
	State string `json:"state"`
}
