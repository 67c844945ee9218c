package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// AdminClient is a client of ForgeRun (AD-053).
type AdminClient struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	// APIKeys are the first 20 of its API keys, the oldest first, and the active one, without their
	// secrets. MoreAPIKeys reports whether there are others, which are revoked.
	APIKeys     []AdminAPIKey `json:"keys"`
	MoreAPIKeys bool          `json:"more_keys"`
	Jobs        AdminJobCount `json:"jobs"`
	// RateLimitPerMinute and QuotaPerDay are the limits in force; 0 is no limit. RateUsed and
	// QuotaUsed are how many requests of this minute and of this day in UTC the nodes have counted,
	// a few of them in advance.
	RateLimitPerMinute int `json:"rate_limit_per_minute"`
	RateUsed           int `json:"rate_used"`
	QuotaPerDay        int `json:"quota_per_day"`
	QuotaUsed          int `json:"quota_used"`
	// OverriddenLimits names the limits that were set for this client, "rate_limit_per_minute" and
	// "quota_per_day". The server's settings have the others.
	OverriddenLimits []string `json:"own_limits"`
}

// AdminAPIKey is an API key of a client of ForgeRun, without its secret.
type AdminAPIKey struct {
	ID string `json:"id"`
	// State is "active", "expired" or "revoked".
	State     string     `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil if it does not expire
	RevokedAt *time.Time `json:"revoked_at"` // nil if it is not revoked
}

// AdminJobCount is how many jobs are stored: Count or, where that is nil, at least AtLeast.
type AdminJobCount struct {
	Count   *int `json:"count,omitempty"`
	AtLeast int  `json:"at_least,omitempty"`
}

// AdminClientLimit changes a limit of a client. The zero value leaves it as it is; [LimitTo] and
// [LimitFromSettings] return the others.
type AdminClientLimit struct {
	set   bool
	value *int
}

// LimitTo sets a limit for one client, in place of that of the server's settings; 0 is no limit.
func LimitTo(limit int) AdminClientLimit { return AdminClientLimit{set: true, value: &limit} }

// LimitFromSettings removes the limit that was set for one client, so that the limit of the
// server's settings is in force.
func LimitFromSettings() AdminClientLimit { return AdminClientLimit{set: true} }

// AdminClientChange has the limits to set for a client.
type AdminClientChange struct {
	RateLimitPerMinute AdminClientLimit
	QuotaPerDay        AdminClientLimit
}

// Clients iterates over the clients of ForgeRun, in the order of their creation (AD-053). At most
// 1,000 jobs of each are counted. pageSize is how many clients one request reads; 0 is the server's
// default. It ends with the first error.
func (a *Admin) Clients(ctx context.Context, pageSize int) iter.Seq2[AdminClient, error] {
	return adminPages[AdminClient](ctx, a, "admin clients", "/admin/v1/clients", nil, pageSize)
}

// Client returns a client of ForgeRun. At most 100,000 of its jobs are counted.
//
// Errors: [ErrNotFound].
func (a *Admin) Client(ctx context.Context, clientID string) (AdminClient, error) {
	return adminCall[AdminClient](ctx, a, call{op: "admin client", path: clientPath(clientID)})
}

// SetClient sets limits of a client and returns it as it is then. They are in force on all nodes
// within two seconds.
//
// Errors: [ErrNotFound]; an [*Error] with the status 400 names the field that is wrong. A repeat
// changes nothing more.
func (a *Admin) SetClient(ctx context.Context, clientID string,
	change AdminClientChange) (AdminClient, error) {
	body := map[string]*int{}
	for name, limit := range map[string]AdminClientLimit{
		"rate_limit_per_minute": change.RateLimitPerMinute, "quota_per_day": change.QuotaPerDay} {
		if limit.set {
			body[name] = limit.value
		}
	}
	return adminCall[AdminClient](ctx, a, call{
		op:     "admin set client",
		method: http.MethodPatch,
		path:   clientPath(clientID),
		body:   encodeBody(body),
	})
}

// RevokeAPIKey revokes an API key of a client and returns the client as it is then. All nodes
// refuse the key within two seconds.
//
// Errors: [ErrNotFound]. A repeat changes nothing more.
func (a *Admin) RevokeAPIKey(ctx context.Context, clientID, keyID string) (AdminClient, error) {
	return adminCall[AdminClient](ctx, a, call{
		op:     "admin revoke API key",
		method: http.MethodPost,
		path:   clientPath(clientID) + "/keys/" + escape(keyID) + "/revoke",
	})
}

func clientPath(clientID string) string { return "/admin/v1/clients/" + escape(clientID) }
