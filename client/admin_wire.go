package client

import (
	"encoding/json"
	"time"
)

// AdminAuditFilter selects entries of the audit. Its zero value selects all.
type AdminAuditFilter struct {
	// Action selects the entries of one action, such as "token.rotate".
	Action string
	// Target selects the entries of one target, such as "token:operator".
	Target string
	// Actor selects the entries of one actor, such as "operator:alice", or "alice" alone.
	Actor string
	// From is inclusive; the zero time is no limit.
	From time.Time
	// To is exclusive; the zero time is no limit.
	To time.Time
	// PageSize is how many entries one request reads; 0 is the server's default.
	PageSize int
}

// AdminAuditEntry is one change that an operator has made, or was refused.
type AdminAuditEntry struct {
	// At is when the operator made the change, in UTC.
	At time.Time `json:"at"`
	// Actor is the kind of the token, operator or read, and after a colon the name of
	// [Admin.WithActor].
	Actor string `json:"actor"`
	// Action is what was done, and Target the thing to which it was done.
	Action string `json:"action"`
	Target string `json:"target"`
	// Before and After are what was changed, as it was before and after; null where there is
	// nothing to show.
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	// RequestID identifies the request in the server's log. It and Remote are empty for a command
	// that used no server.
	RequestID string `json:"request_id"`
	// Remote is the address from which the request came.
	Remote string `json:"remote"`
	// RefusalCode is the code with which the change was refused; nil for one that was made.
	RefusalCode *string `json:"refused"`
}

// AdminSetting is a setting of a node.
type AdminSetting struct {
	// Key is its name, and Value its value; secrets are masked.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Origin is where the value comes from: default, file, environment or flag.
	Origin string `json:"origin"`
	// Description says what it is for.
	Description string `json:"meaning"`
}

// AdminHealth is the health of the components that a node depends on.
type AdminHealth struct {
	// OK reports whether every component works that is not optional.
	OK         bool             `json:"ok"`
	Components []AdminComponent `json:"parts"`
}

// AdminComponent is a component that a node depends on, as it was found to be.
type AdminComponent struct {
	Name string `json:"name"`
	// State is "ok" or "failing", and StateSince when that began, as far as the node knows.
	State      string    `json:"state"`
	StateSince time.Time `json:"since"`
	// Optional components may fail while the node is ready.
	Optional bool `json:"optional"`
	// Latency is how long the check took, in seconds.
	Latency float64 `json:"latency"`
	// LastError is why the component failed last, and LastErrorAt when; nil if it has not failed
	// since the node started.
	LastError   *string    `json:"last_error"`
	LastErrorAt *time.Time `json:"last_error_at"`
}
