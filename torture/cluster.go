package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"
)

// serverUser is the user who runs PostgreSQL where torture is run by root, whom PostgreSQL
// refuses.
const serverUser = "postgres"

// clusterTimeout bounds each step of a failover that waits for a server.
const clusterTimeout = 60 * time.Second

// cluster is two PostgreSQL servers of a run, a primary and a standby that replicates it. Where it
// is synchronous, a commit is on both before it is answered, except while the standby is made
// anew: then the primary goes on alone, as Patroni has it, and torture does not harm it.
type cluster struct {
	dir         string // open to the user of the servers, so not the directory of the run
	synchronous bool
	servers     [2]*pgServer
	primary     int
}

// newCluster starts both servers. Their logs are in the directory of the run.
func newCluster(ctx context.Context, p *plan) (_ *cluster, err error) {
	dir, err := os.MkdirTemp("", "torture-postgres")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, synchronous: p.Only == faultFailover}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for i := range c.servers {
		// Their disks are not synced: they are killed, and no machine of them loses power.
		if c.servers[i], err = newPgServer(i, p.Dir, dir, "-c", "fsync=off", "-c",
			"wal_keep_size=512MB"); err != nil {
			return nil, err
		}
	}
	if err := c.servers[0].create(ctx); err != nil {
		return nil, err
	}
	return c, c.rebuild(ctx)
}

// ownerOf returns the ids of the user that has the files of the servers: that of torture, except
// for root.
func ownerOf(name string) (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return os.Getuid(), os.Getgid(), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, err
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// leader and standby are the servers by what they are now.
func (c *cluster) leader() *pgServer  { return c.servers[c.primary] }
func (c *cluster) standby() *pgServer { return c.servers[1-c.primary] }

// addresses are those of both servers, as a URL has them.
func (c *cluster) addresses() string {
	return c.servers[0].address + "," + c.servers[1].address
}

// promote makes the standby the primary, which goes on alone.
func (c *cluster) promote(ctx context.Context) error {
	if err := c.standby().require(ctx, ""); err != nil {
		return err
	}
	if err := c.standby().exec(ctx, "SELECT pg_promote(true, 60)"); err != nil {
		return err
	}
	c.primary = 1 - c.primary
	return c.leader().await(ctx, "SELECT NOT pg_is_in_recovery()")
}

// rebuild makes the server that is not the primary a copy of it and starts it as its standby. It
// returns when whatever is committed from now on is on both servers before it is answered, and what
// was committed before is on both as well.
func (c *cluster) rebuild(ctx context.Context) error {
	s := c.standby()
	if err := s.renew(); err != nil {
		return err
	}
	if err := s.command("pg_basebackup", "-D", s.data(), "-R", "--checkpoint=fast", "--no-sync",
		"-d", c.leader().url()); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	if !c.synchronous {
		return c.leader().await(ctx, "SELECT count(*)>0 FROM pg_stat_replication "+
			"WHERE state='streaming'")
	}
	if err := c.leader().require(ctx, "*"); err != nil {
		return err
	}
	if err := c.leader().await(ctx, "SELECT count(*)>0 FROM pg_stat_replication "+
		"WHERE state='streaming' AND sync_state='sync'"); err != nil {
		return err
	}
	// The process that makes sessions wait is the one that makes checkpoints: it has read the
	// setting before it makes one that is asked for afterwards.
	if err := c.leader().exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	var at string
	if err := c.leader().query(ctx, "SELECT pg_current_wal_lsn()::text", &at); err != nil {
		return err
	}
	return c.leader().await(ctx, "SELECT count(*)>0 FROM pg_stat_replication "+
		"WHERE sync_state='sync' AND flush_lsn>='"+at+"'")
}

// holdStream stops what sends the log to the standby, as a network between the two that is cut.
// Only the end of the primary ends it.
func (c *cluster) holdStream(ctx context.Context) error {
	var pid int
	if err := c.leader().query(ctx, "SELECT pid FROM pg_stat_replication "+
		"WHERE state='streaming'", &pid); err != nil {
		return err
	}
	return freezeProcess(pid)
}

// close ends both servers and removes their data.
func (c *cluster) close() error {
	if c == nil {
		return nil
	}
	var errs []error
	for _, s := range c.servers {
		if s != nil {
			errs = append(errs, s.kill(), s.log.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// url is that of the database postgres at the server.
func (s *pgServer) url() string {
	return "postgres://" + serverUser + "@" + s.address + "/postgres?sslmode=disable"
}

// query reads one value by a connection of its own.
func (s *pgServer) query(ctx context.Context, text string, into any) error {
	return s.connect(ctx, text, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, text).Scan(into)
	})
}

// exec runs a statement by a connection of its own.
func (s *pgServer) exec(ctx context.Context, text string) error {
	return s.connect(ctx, text, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, text)
		return err
	})
}

// connect calls a function with a connection. what stands in its error.
func (s *pgServer) connect(ctx context.Context, what string,
	fn func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	db, err := sql.Open("pgx", s.url())
	if err != nil {
		return err
	}
	defer db.Close()
	if err := fn(ctx, db); err != nil {
		return fmt.Errorf("server %d: %s: %w", s.number, what, err)
	}
	return nil
}

// require sets which standbys a commit waits for; "" is none.
func (s *pgServer) require(ctx context.Context, standbys string) error {
	if err := s.exec(ctx, "ALTER SYSTEM SET synchronous_standby_names='"+standbys+
		"'"); err != nil {
		return err
	}
	return s.exec(ctx, "SELECT pg_reload_conf()")
}

// await waits until a query says that something is so.
func (s *pgServer) await(ctx context.Context, query string) error {
	start := time.Now()
	for {
		is := false
		err := s.query(ctx, query, &is) // fails as long as the server starts
		if is {
			return nil
		}
		if time.Since(start) > clusterTimeout {
			return errors.Join(fmt.Errorf("server %d: not within %s: %s", s.number, clusterTimeout,
				query), err)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}
