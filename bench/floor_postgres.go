package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floorPostgres is bare SQL on a queue table: what a store on PostgreSQL cannot beat with batches
// of this size and as many connections.
type floorPostgres struct {
	pool       *pgxpool.Pool
	conns      int
	durability string
}

const pgSchema = `
CREATE TABLE floor_job (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	queue        text        NOT NULL,
	state        text        NOT NULL,
	priority     smallint    NOT NULL,
	run_at       timestamptz NOT NULL,
	attempt      smallint    NOT NULL,
	max_attempts smallint    NOT NULL,
	lease_until  timestamptz,
	worker       text,
	payload      bytea       NOT NULL,
	created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX floor_job_ready ON floor_job (queue, priority, run_at, id) WHERE state = 'ready';`

const (
	pgInsert = `INSERT INTO floor_job (queue, state, priority, run_at, attempt, max_attempts, payload)
		SELECT 'default', 'ready', 1, r, 0, 25, p FROM unnest($1::timestamptz[], $2::bytea[]) AS j (r, p)`

	// pgClaim leases the first ready jobs that nobody else is claiming.
	pgClaim = `WITH ready AS MATERIALIZED (
			SELECT id FROM floor_job WHERE queue = 'default' AND state = 'ready' AND run_at <= now()
			ORDER BY priority, run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
		UPDATE floor_job j SET state = 'leased', attempt = attempt + 1,
			lease_until = now() + interval '1 minute', worker = 'w'
		FROM ready WHERE j.id = ready.id
		RETURNING j.id, j.attempt, j.payload`

	pgDelete = `DELETE FROM floor_job WHERE id = ANY($1::bigint[])`
)

func setupFloorPostgres(ctx context.Context, env *Env) (Runner, error) {
	pg, err := env.Postgres(ctx, "floor")
	if err != nil {
		return nil, err
	}
	conns := env.Tuning.PostgresConns
	pool, err := pg.Pool(ctx, conns)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, pgSchema); err != nil {
		pool.Close()
		return nil, err
	}
	return &floorPostgres{pool: pool, conns: conns, durability: pg.Durability()}, nil
}

func (f *floorPostgres) Durability() string { return f.durability }

func (f *floorPostgres) Run(ctx context.Context, n int) ([]Phase, error) {
	if _, err := f.pool.Exec(ctx, "TRUNCATE floor_job"); err != nil {
		return nil, err
	}
	insert, err := f.insertAll(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	ids, claim, err := f.claimAll(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	finish, err := f.deleteAll(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return []Phase{insert, claim, finish, totalPhase(n, insert, claim, finish)}, nil
}

func (f *floorPostgres) insertAll(ctx context.Context, n int) (Phase, error) {
	cut := batches(n, floorBatch)
	started := time.Now()
	_, err := runParallel(ctx, f.conns, len(cut), func(ctx context.Context, _, i int) error {
		now := time.Now()
		times := make([]time.Time, 0, floorBatch)
		payloads := make([][]byte, 0, floorBatch)
		for num := cut[i][0]; num < cut[i][1]; num++ {
			times = append(times, now)
			payloads = append(payloads, appendPayload(nil, num))
		}
		_, err := f.pool.Exec(ctx, pgInsert, times, payloads)
		return err
	})
	return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started)}, err
}

// claimAll asks once per batch. A claim may come back short when others hold the rows it would have
// taken, so each connection goes on until it gets none.
func (f *floorPostgres) claimAll(ctx context.Context, n int) ([]int64, Phase, error) {
	var mu sync.Mutex
	ids := make([]int64, 0, n)
	started := time.Now()
	_, err := runParallel(ctx, f.conns, f.conns, func(ctx context.Context, _, _ int) error {
		for {
			got, err := f.claimOnce(ctx)
			if err != nil {
				return err
			}
			mu.Lock()
			ids = append(ids, got...)
			all := len(ids) >= n
			mu.Unlock()
			if all || len(got) == 0 {
				return nil
			}
		}
	})
	took := time.Since(started)
	phase := Phase{Name: phaseClaim, Jobs: n, Took: took}
	if err != nil {
		return ids, phase, err
	}
	if len(ids) != n {
		return ids, phase, fmt.Errorf("%d of %d jobs were claimed", len(ids), n)
	}
	return ids, phase, nil
}

func (f *floorPostgres) claimOnce(ctx context.Context) ([]int64, error) {
	rows, err := f.pool.Query(ctx, pgClaim, floorBatch)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, 0, floorBatch)
	var id int64
	var attempt int16
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &attempt, &payload}, func() error {
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

func (f *floorPostgres) deleteAll(ctx context.Context, ids []int64) (Phase, error) {
	cut := batches(len(ids), floorBatch)
	started := time.Now()
	_, err := runParallel(ctx, f.conns, len(cut), func(ctx context.Context, _, i int) error {
		keys := ids[cut[i][0]:cut[i][1]]
		tag, err := f.pool.Exec(ctx, pgDelete, keys)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != int64(len(keys)) {
			return fmt.Errorf("deleted %d of %d", tag.RowsAffected(), len(keys))
		}
		return nil
	})
	return Phase{Name: phaseDelete, Jobs: len(ids), Took: time.Since(started)}, err
}

func (f *floorPostgres) Close() error {
	f.pool.Close()
	return nil
}
