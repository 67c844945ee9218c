package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"time"
)

// modeIsolated cuts the primary off from the standbys and the etcd until another one is the
// primary, while clients reach it.
const modeIsolated = "isolated"

// patroniModes are the modes in which the primary of Patroni is lost. The machine of a frozen one
// is started again when the nodes have gone on without it, as a watchdog does.
var patroniModes = []string{modeKilled, modeCut, modeIsolated, modeFrozen, modeSwitched}

// isPatroni reports whether a kind of fault needs servers that Patroni keeps.
func isPatroni(kind string) bool { return kind == faultPatroni || kind == faultPatroniAsync }

// leader is the member that was the primary at last.
func (c *patroniCluster) leader() *patroniMember { return c.members[c.primary] }

// addresses are those of all servers, as a URL has them.
func (c *patroniCluster) addresses() string {
	return c.members[0].server.address + "," + c.members[1].server.address + "," +
		c.members[2].server.address
}

// awaitLeader waits until a member other than the one before is the primary.
func (c *patroniCluster) awaitLeader(ctx context.Context) error {
	for began := time.Now(); ; {
		for i, m := range c.members {
			if i != c.primary && m.is("primary") {
				c.primary = i
				return m.server.await(ctx, "SELECT NOT pg_is_in_recovery()")
			}
		}
		if time.Since(began) > patroniTimeout {
			return fmt.Errorf("no other primary within %s", patroniTimeout)
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// awaitStandbys waits until both standbys follow the primary, and one of them is synchronous where
// the cluster is.
func (c *patroniCluster) awaitStandbys(ctx context.Context) error {
	for began := time.Now(); ; {
		if c.hasStandbys(ctx) {
			return nil
		}
		if time.Since(began) > patroniTimeout {
			return fmt.Errorf("not two standbys within %s", patroniTimeout)
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// hasStandbys reports whether the standbys are as they have to be.
func (c *patroniCluster) hasStandbys(ctx context.Context) bool {
	synchronous := 0
	for _, m := range c.members {
		if m.is("sync") {
			synchronous++
		}
	}
	if !c.leader().is("primary") || (c.synchronous && synchronous != 1) {
		return false
	}
	streaming := 0
	if err := c.leader().server.query(ctx, "SELECT count(*) FROM pg_stat_replication WHERE "+
		"state='streaming' AND application_name<>'pg_basebackup'", &streaming); err != nil {
		return false
	}
	return streaming == len(c.members)-1
}

// switchOver asks Patroni to make a standby the primary.
func (c *patroniCluster) switchOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patroniTimeout)
	defer cancel()
	body := encode(map[string]string{"leader": filepath.Base(c.leader().dir)})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.leader().api+
		"/switchover", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("the switchover is answered %d %s", resp.StatusCode, text),
			err)
	}
	return nil
}

// lose loses the primary in the mode that a fault names. What it returns brings the machine back
// when another one is the primary.
func (c *patroniCluster) lose(ctx context.Context, f fault) (back func() error, err error) {
	m := c.leader()
	switch f.Mode {
	case modeKilled:
		return m.start, m.kill()
	case modeCut:
		replication := []*proxy{m.proxies.server}
		cut(replication, true)
		sleep(ctx, f.Length)
		err := m.kill()
		cut(replication, false)
		return m.start, err
	case modeIsolated:
		cut(m.proxies.all(), true)
		return func() error {
			// Its Patroni 3.0 may start two servers where the network comes back before that.
			err := m.server.await(context.WithoutCancel(ctx), "SELECT pg_is_in_recovery()")
			cut(m.proxies.all(), false)
			return err
		}, nil
	case modeFrozen:
		return func() error { return errors.Join(m.kill(), m.start()) }, m.freeze()
	case modeSwitched:
		return func() error { return nil }, c.switchOver(context.WithoutCancel(ctx))
	}
	return nil, fmt.Errorf("there is no mode %q to lose a primary", f.Mode)
}

// longestGap returns the longest time in which no write was acknowledged, between two times.
func (l *ledger) longestGap(from, to int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	acknowledged := []int64{to}
	for _, o := range l.ops {
		if o.Returned > from && o.Returned < to && o.Class == classOK && o.writes() {
			acknowledged = append(acknowledged, o.Returned)
		}
	}
	slices.Sort(acknowledged)
	longest := int64(0)
	for _, at := range acknowledged {
		longest, from = max(longest, at-from), at
	}
	return time.Duration(longest) * time.Microsecond
}

// failOverPatroni loses the primary, waits until Patroni has another one and the nodes go on, and
// brings the lost machine back. It returns when that one is a standby.
func (r *run) failOverPatroni(ctx context.Context, f fault) error {
	heal, c := context.WithoutCancel(ctx), r.patroni
	o := failedOver{Mode: f.Mode, Lost: r.ledger.now()}
	back, err := c.lose(ctx, f)
	if err != nil {
		return err
	}
	if err := c.awaitLeader(heal); err != nil {
		return err
	}
	o.Promoted = r.ledger.now()
	if err := r.database.follow(c.leader().server.url()); err != nil {
		return err
	}
	// The lost primary may have acknowledged writes for a while.
	if at, ok := r.awaitWrites(ctx, o.Promoted); ok {
		o.Outage = r.ledger.longestGap(o.Lost, at)
		o.Wait = time.Duration(at-o.Promoted) * time.Microsecond
	}
	if err := back(); err != nil {
		return err
	}
	if err := r.awaitNodes(heal); err != nil {
		return err
	}
	r.failovers = append(r.failovers, o)
	if err := c.awaitStandbys(heal); err != nil {
		return err
	}
	r.logFailover(&o)
	return nil
}
