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
	// Keys are the first 20 of its API keys, the oldest first, and the active one, without their
	// secrets. MoreKeys says that there are others, which are revoked.
	Keys     []AdminClientKey `json:"keys"`
	MoreKeys bool             `json:"more_keys"`
	Jobs     AdminJobCount    `json:"jobs"`
	// RateLimitPerMinute and QuotaPerDay are what is in force, 0 is no limit. RateUsed and
	// QuotaUsed are how many requests of this minute and UTC day nodes have taken for the client,
	// a few of them in advance.
	RateLimitPerMinute int `json:"rate_limit_per_minute"`
	RateUsed           int `json:"rate_used"`
	QuotaPerDay        int `json:"quota_per_day"`
	QuotaUsed          int `json:"quota_used"`
	// OwnLimits names the limits that were set for this client: "rate_limit_per_minute",
	// "quota_per_day". The others are those of the server's settings.
	OwnLimits []string `json:"own_limits"`
}

// AdminClientKey is an API key of a client.
type AdminClientKey struct {
	ID string `json:"id"`
	// State is "active", "expired" or "revoked".
	State     string     `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil is never
	RevokedAt *time.Time `json:"revoked_at"` // nil: it is not revoked
}

// AdminJobCount is how many jobs are kept: Count of them or, where that is nil, AtLeast as many.
type AdminJobCount struct {
	Count   *int `json:"count,omitempty"`
	AtLeast int  `json:"at_least,omitempty"`
}

// AdminClientLimit changes a limit of a client. The zero value leaves it as it is.
type AdminClientLimit struct {
	set   bool
	value *int
}

// ClientLimit is a limit of a client's own; 0 is no limit.
func ClientLimit(limit int) AdminClientLimit { return AdminClientLimit{set: true, value: &limit} }

// SettingsLimit takes a limit of a client's own away: that of the server's settings is in force.
func SettingsLimit() AdminClientLimit { return AdminClientLimit{set: true} }

// AdminClientChange is what to set for a client.
type AdminClientChange struct {
	RateLimitPerMinute AdminClientLimit
	QuotaPerDay        AdminClientLimit
}

// Clients iterates over the clients, in the order in which they were made (AD-053). Of the jobs of
// each 1,000 are counted at most. pageSize is how many one request reads; 0 leaves it to the
// server. It ends with the first error.
func (a *Admin) Clients(ctx context.Context, pageSize int) iter.Seq2[AdminClient, error] {
	return adminPages[AdminClient](ctx, a, "admin clients", "/admin/v1/clients", nil, pageSize)
}

// Client returns a client. Of its jobs 100,000 are counted at most.
//
// Errors: [ErrNotFound].
func (a *Admin) Client(ctx context.Context, clientID string) (AdminClient, error) {
	return adminCall[AdminClient](ctx, a, call{op: "admin client", path: clientPath(clientID)})
}

// SetClient sets limits of a client and returns it as it is then. They are in force on all nodes
// within two seconds.
//
// Errors: [ErrNotFound]; an [*Error] with the status 400 names the member that is wrong. A repeat
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

// RevokeClientKey revokes a key of a client, which all nodes refuse within two seconds, and returns
// the client as it is then.
//
// Errors: [ErrNotFound]. A repeat changes nothing more.
func (a *Admin) RevokeClientKey(ctx context.Context, clientID, keyID string) (AdminClient, error) {
	return adminCall[AdminClient](ctx, a, call{
		op:     "admin revoke client key",
		method: http.MethodPost,
		path:   clientPath(clientID) + "/keys/" + escape(keyID) + "/revoke",
	})
}

func clientPath(clientID string) string { return "/admin/v1/clients/" + escape(clientID) }
