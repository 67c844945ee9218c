package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/clock"
)

// A server that falls silent ends no connection. What was sent to it waits for its deadline, maybe
// on all connections of the node, also when another server has taken its place. A slow server looks
// the same, so no wait alone ends a connection (decision 0118):
//
//	a connection waits for silentAfter ──> every host is asked on a new connection
//	    none accepts writes, or the server of that connection does ──> it goes on waiting
//	    another server accepts writes, and its own does not        ──> it is ended
//
// What has waited fails then as on every lost connection: the outcome of a COMMIT is unknown.

// silentAfter is how long a connection waits before the hosts are asked, and askTimeout how long
// they may take to answer.
const (
	silentAfter = time.Second
	askTimeout  = 2 * time.Second
)

// selectServer is a column that differs between any two servers, also behind the same address: when
// the server was started.
const selectServer = "extract(epoch FROM pg_postmaster_start_time())::text"

// watchServers ends the connections to a server that is silent and was replaced, until ctx ends.
func (s *Store) watchServers(ctx context.Context) {
	for clock.Sleep(ctx, retryInterval) {
		if slices.ContainsFunc(s.route.connections.list(), (*connection).isSilent) {
			s.endReplaced(ctx)
		}
	}
}

// endReplaced asks all hosts at once, so that one that is silent delays no other one. Where one of
// them accepts writes, it ends the connections to servers that do not, also those that are idle.
func (s *Store) endReplaced(ctx context.Context) {
	hosts := hostsOf(s.route.config)
	servers := s.route.askServers(ctx, hosts)
	writable := slices.IndexFunc(servers, func(server string) bool { return server != "" })
	if writable < 0 {
		return
	}
	s.route.prefer(hosts, writable)
	ended := 0
	for _, c := range s.route.connections.list() {
		if c.isToOther(servers) {
			c.Close()
			ended++
		}
	}
	if ended > 0 {
		s.config.Log.Warn("another PostgreSQL server has replaced one that does not answer: "+
			"the connections to that one are ended", "connections", ended)
	}
}

// askServers returns to which server each of the hosts leads, and "" for one that does not answer
// in time or accepts no writes.
func (r *route) askServers(ctx context.Context, hosts [][]*pgconn.FallbackConfig) []string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	servers := make([]string, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() { servers[i] = r.askServer(ctx, host) })
	}
	all.Wait()
	return servers
}

func (r *route) askServer(ctx context.Context, host []*pgconn.FallbackConfig) string {
	cfg := r.config.Copy()
	setHosts(cfg, host)
	conn, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return ""
	}
	defer closeConn(conn)
	results, err := conn.Exec(ctx, beginUpdate+"; "+readState+r.local+"; ROLLBACK").ReadAll()
	if err != nil || string(results[1].Rows[0][1]) == "on" {
		return ""
	}
	return string(results[1].Rows[0][2])
}
