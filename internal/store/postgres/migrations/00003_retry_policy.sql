-- +goose Up
-- How long a job waits after a failed attempt. retry_strategy: 0 fixed, 1 linear, 2 exponential.
-- retry_after: failed attempts that came before the policy.
ALTER TABLE jobs ADD COLUMN retry_strategy SMALLINT NOT NULL DEFAULT 0,
    ADD COLUMN retry_base  BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN retry_max   BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN retry_after INTEGER NOT NULL DEFAULT 0;

-- TaskFlow kept the policy of a job as words in its kind, in seconds: 'EXPONENTIAL 10 300'. Any
-- other kind stood for these numbers.
UPDATE jobs SET kind = '',
    retry_strategy = CASE split_part(kind, ' ', 1) WHEN 'FIXED' THEN 0 WHEN 'LINEAR' THEN 1 ELSE 2
        END,
    retry_base = 1000000 * split_part(kind, ' ', 2)::bigint,
    retry_max = 1000000 * split_part(kind, ' ', 3)::bigint
    WHERE contract = 'taskflow' AND kind ~ '^(FIXED|LINEAR|EXPONENTIAL) [0-9]{1,9} [0-9]{1,9}$';
UPDATE jobs SET kind = '', retry_strategy = 2, retry_base = 10000000, retry_max = 300000000
    WHERE contract = 'taskflow' AND retry_base = 0;

-- The other delays came from settings. Jobs that are there keep the defaults of these.
UPDATE jobs SET retry_strategy = 2, retry_base = 1000000, retry_max = 300000000,
    retry_after = greatest(0, run_limit - 3) WHERE contract = 'fetchbox.task';
UPDATE jobs SET retry_strategy = 2, retry_base = 5000000, retry_max = 300000000
    WHERE contract = 'images';
UPDATE jobs SET retry_strategy = 2, retry_base = 1000000, retry_max = 600000000
    WHERE contract = 'images.purge';
