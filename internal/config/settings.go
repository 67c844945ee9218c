package config

import (
	"slices"
	"time"
)

// Settings is everything an operator can set, resolved. It is filled by Load and passed on by value; nobody changes it.
type Settings struct {
	Listen         string   // address of the common listener
	DataDir        string   // directory of everything this node keeps on disk
	Store          StoreURL // where jobs live
	Contracts      []string // contracts that are served
	TLS            TLS
	TrustedNetwork bool
	ShutdownGrace  time.Duration
	PruneInterval  time.Duration
	Operator       Operator
	Log            Log
	Relay          Relay

	origins map[string]string // key → where its value was written; a key left out has its default
}

// TLS names the certificate of all listeners; both files are set or neither is.
type TLS struct {
	Cert string
	Key  string
}

// Enabled tells whether listeners speak TLS.
func (t TLS) Enabled() bool { return t.Cert != "" && t.Key != "" }

// Operator guards the admin API and the console.
type Operator struct {
	Token Secret // empty: made on first start
}

// Log says how the process logs.
type Log struct {
	Format string // text or json
	Level  string // debug, info, warn or error
}

// Relay holds the settings of the Relay contract.
type Relay struct {
	Listen          string // empty: the common listener
	Token           Secret // empty: open, on loopback only (G-RL-24)
	V1              bool   // G-RL-22
	MaxNumJobs      int    // G-RL-11
	BodyLimit       int64  // bytes, G-RL-13
	RetryableStatus int    // 429 or 503, G-RL-09
}

// Serves tells whether the contract is switched on.
func (s Settings) Serves(contract string) bool {
	return slices.Contains(s.Contracts, contract)
}
