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
	// From is inclusive; the zero time is no bound.
	From time.Time
	// To is exclusive; the zero time is no bound.
	To time.Time
	// PageSize is how many entries one request reads; zero means as many as the server chooses.
	PageSize int
}

// AdminAuditEntry is one change that an operator has made, or was refused.
type AdminAuditEntry struct {
	// At is when it was changed, in UTC.
	At time.Time `json:"at"`
	// Actor is the kind of the token, operator or read, and after a colon the name that
	// [Admin.WithActor] has given.
	Actor string `json:"actor"`
	// Action is what was done, and Target what it was done to.
	Action string `json:"action"`
	Target string `json:"target"`
	// Before and After are the states of what was changed; null where there is none to show.
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	// RequestID identifies the request in the server's log. It and Remote are empty for a command
	// that used no server.
	RequestID string `json:"request_id"`
	// Remote is the address that the request came from.
	Remote string `json:"remote"`
	// Refused is the code with which the change was refused; nil for one that was made.
	Refused *string `json:"refused"`
}

// AdminSetting is a setting of a node.
type AdminSetting struct {
	// Key is its name, and Value its value; secrets are masked.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Origin is where the value was written: default, file, environment or flag.
	Origin string `json:"origin"`
	// Meaning says what it is for.
	Meaning string `json:"meaning"`
}

// AdminHealth is how the parts are that a node depends on.
type AdminHealth struct {
	// OK reports whether every part works that is not optional.
	OK    bool        `json:"ok"`
	Parts []AdminPart `json:"parts"`
}

// AdminPart is something that a node depends on.
type AdminPart struct {
	Name string `json:"name"`
	// State is "ok" or "failing", and Since when it began to be so, as far as the node knows.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Optional parts may fail while the node is ready.
	Optional bool `json:"optional"`
	// Latency is how long it took to find out, in seconds.
	Latency float64 `json:"latency"`
	// LastError is why the part failed last, and LastErrorAt when; nil if it has not since the
	// node started.
	LastError   *string    `json:"last_error"`
	LastErrorAt *time.Time `json:"last_error_at"`
}
