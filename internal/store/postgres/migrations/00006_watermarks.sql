-- +goose Up
-- When a job became ready, by the clock of the server and after its transaction had locked the
-- table. A late job is one whose order time was more than two seconds before that. Claims that begin
-- at a watermark find late jobs by an index of their own (decision 0046).
ALTER TABLE ready ADD COLUMN arrived BIGINT NOT NULL
    DEFAULT (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
CREATE INDEX ready_late ON ready (queue_hash, (-priority::bigint), order_time, seq)
    WHERE order_time < arrived - 2000000;

-- A ready job that is edited arrives again: it may have another place in the order of claims.
-- +goose StatementBegin
CREATE FUNCTION ready_arrives() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.arrived := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ready_arrives BEFORE UPDATE ON ready
    FOR EACH ROW EXECUTE FUNCTION ready_arrives();
