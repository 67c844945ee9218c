package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// hostsOf returns the hosts of a configuration, each with the configurations to connect to it.
func hostsOf(cfg *pgx.ConnConfig) (hosts [][]*pgconn.FallbackConfig) {
	first := &pgconn.FallbackConfig{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}
	for _, target := range slices.Insert(slices.Clone(cfg.Fallbacks), 0, first) {
		last := len(hosts) - 1
		if last >= 0 && hosts[last][0].Host == target.Host && hosts[last][0].Port == target.Port {
			hosts[last] = append(hosts[last], target)
			continue
		}
		hosts = append(hosts, []*pgconn.FallbackConfig{target})
	}
	return hosts
}

// setHosts makes a configuration connect to targets, one after another.
func setHosts(cfg *pgx.ConnConfig, targets []*pgconn.FallbackConfig) {
	cfg.Host, cfg.Port, cfg.TLSConfig = targets[0].Host, targets[0].Port, targets[0].TLSConfig
	cfg.Fallbacks = targets[1:]
}

// prefer has new connections ask one of the hosts before the others, so that none waits for a host
// that is silent. Where the URL does not say which servers will do, its order goes on to decide.
func (r *route) prefer(hosts [][]*pgconn.FallbackConfig, first int) {
	if r.config.ValidateConnect == nil {
		return
	}
	targets := slices.Clone(hosts[first])
	for i, host := range hosts {
		if i != first {
			targets = append(targets, host...)
		}
	}
	r.preferred.Store(&targets)
}

// order puts the preferred host first in the configuration of a new connection.
func (r *route) order(cfg *pgx.ConnConfig) {
	if targets := r.preferred.Load(); targets != nil {
		setHosts(cfg, *targets)
	}
}
