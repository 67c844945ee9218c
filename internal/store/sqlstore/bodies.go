package sqlstore

import (
	"database/sql"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A body is in one of two places, and the bit of OutOfLine in the row of its job says in which:
//
//	len <= maxInlineBody    column of the row        bit 0, no row in bodies
//	len >  maxInlineBody    row of the table bodies  bit 1, column NULL
//
// Whatever writes a body writes the bit in the same transaction, so the two never disagree. The
// number of a job finds its large bodies by primary key; only statements that ask for bodies do
// so.

var (
	bodyKey = []Column{{"seq", Integer}, {"part", Integer}}

	putBodies = insertInto("put_bodies", "bodies",
		append(bodyKey[:2:2], Column{"data", Bytes}),
		"ON CONFLICT (seq,part) DO UPDATE SET data=excluded.data")
	getBodies = &Statement{"get_bodies",
		"SELECT seq,part,data FROM bodies WHERE seq {in $1} AND part {in $2}"}
	sizeBodies = &Statement{"size_bodies",
		`SELECT seq,CAST(sum(octet_length(data)) AS BIGINT) FROM bodies
		WHERE seq {in $1} GROUP BY seq`}
	deleteBodies = &Statement{"delete_bodies", "DELETE FROM bodies WHERE seq {in $1}"}
	deletePart   = &Statement{"delete_body_part",
		"DELETE FROM bodies WHERE seq {in $1} AND part=$2"}

	updateFactBody  = bodyUpdates("jobs", 0)
	updateStateBody = stateBodyUpdates()
)

// bodyUpdates returns an update of each body in a table, together with its column of OutOfLine.
func bodyUpdates(table string, outOfLine int) (all [job.Bodies]jobUpdate) {
	for p, col := range bodyColumns {
		all[p] = updateJobs("set_"+col.Name, table, col, outOfLineColumns[outOfLine])
	}
	return all
}

// stateBodyUpdates returns those of the table of each phase.
func stateBodyUpdates() (all [len(tables)][job.Bodies]jobUpdate) {
	for p := range tables {
		all[p] = bodyUpdates(tables[p].name, 1)
	}
	return all
}

// storeOutOfLine writes the bodies that are too large for the rows of new jobs. newJobs has set
// their OutOfLine, and the insert their Seq.
func (t *Tx) storeOutOfLine(jobs []*job.Job) error {
	var rows [][]any
	for _, j := range jobs {
		for p := range job.Bodies {
			if j.OutOfLine&(1<<p) != 0 {
				rows = append(rows, bodyRow(j, p))
			}
		}
	}
	return t.bulk(putBodies, rows)
}

// bodyRow returns the values of putBodies.
func bodyRow(j *job.Job, p job.Body) []any { return []any{j.Seq, int64(p), *j.Body(p)} }

// bodySets has the bits of the bodies that each choice of them has.
var bodySets = [...]uint8{
	store.DefinitionOnly: 1 << job.Definition,
	store.FailureOnly:    1 << job.Failure,
	store.AllBodies:      1<<job.Bodies - 1,
	store.OnlyBodies:     1<<job.Bodies - 1,
}

// body is a row of the table bodies.
type body struct {
	seq  int64
	part job.Body
	data blob
}

// loadOutOfLine fills in those of the bodies that are not in the rows of the jobs. It runs one
// statement for all of them, and none if every body is in its row.
func (t *Tx) loadOutOfLine(bodies store.Bodies, jobs []*job.Job) error {
	bySeq := map[int64]*job.Job{}
	var seqs, parts []int64
	for _, j := range jobs {
		if j.OutOfLine&bodySets[bodies] != 0 {
			bySeq[j.Seq] = j
			seqs = append(seqs, j.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	for p := range job.Bodies {
		if bodySets[bodies]&(1<<p) != 0 {
			parts = append(parts, int64(p))
		}
	}
	found, err := collect(t, getBodies, func(rows *sql.Rows) (b body, err error) {
		err = rows.Scan(&b.seq, &b.part, &b.data)
		return b, err
	}, t.s.Ints(seqs), t.s.Ints(parts))
	for _, b := range found {
		*bySeq[b.seq].Body(b.part) = b.data
	}
	return err
}

// limitOutOfLine returns as many of the first jobs as have no more than the given bytes out of
// line together, but at least one. It asks for sizes alone, so that the bodies of the jobs that
// are left out are never read.
func (t *Tx) limitOutOfLine(bytes int64, jobs []*job.Job) ([]*job.Job, error) {
	var seqs []int64
	for _, j := range jobs {
		if j.OutOfLine != 0 {
			seqs = append(seqs, j.Seq)
		}
	}
	if len(seqs) < 2 {
		return jobs, nil
	}
	sizes := map[int64]int64{}
	_, err := collect(t, sizeBodies, func(rows *sql.Rows) (struct{}, error) {
		var seq, size int64
		err := rows.Scan(&seq, &size)
		sizes[seq] = size
		return struct{}{}, err
	}, t.s.Ints(seqs))
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if bytes -= sizes[j.Seq]; bytes < 0 && i > 0 {
			return jobs[:i], nil
		}
	}
	return jobs, nil
}

// updateBodies writes body p of jobs, in the table where each of them is now.
func (t *Tx) updateBodies(p job.Body, jobs []*job.Job) error {
	if isInDefinition(p) {
		return t.withBodies(p, jobs,
			func() error { return t.updateFields(updateFactBody[p], jobs) })
	}
	var in [len(tables)][]*job.Job
	for _, j := range jobs {
		phase := t.locations[j.Seq].phase
		in[phase] = append(in[phase], j)
	}
	for phase, some := range in {
		if err := t.withBodies(p, some, func() error {
			return t.updateFields(updateStateBody[phase][p], some)
		}); err != nil {
			return err
		}
	}
	return nil
}

// withBodies runs write, which writes body p, and moves the body between the row and the table
// bodies where its size asks for it. It sets OutOfLine of the jobs before they are written. A row
// of the table bodies is replaced when the body is large again and deleted when it no longer is.
func (t *Tx) withBodies(p job.Body, jobs []*job.Job, write func() error) error {
	if p == noBody {
		return write()
	}
	var outOfLine [][]any
	var inline []int64 // jobs whose body was out of line and no longer is
	for _, j := range jobs {
		data, was := *j.Body(p), j.OutOfLine&(1<<p) != 0
		switch {
		case len(data) > maxInlineBody:
			j.OutOfLine |= 1 << p
			outOfLine = append(outOfLine, bodyRow(j, p))
		case was:
			j.OutOfLine &^= 1 << p
			inline = append(inline, j.Seq)
		}
	}
	if err := write(); err != nil {
		return err
	}
	if len(inline) > 0 {
		if _, err := t.exec(deletePart, t.s.Ints(inline), int64(p)); err != nil {
			return err
		}
	}
	return t.bulk(putBodies, outOfLine)
}
