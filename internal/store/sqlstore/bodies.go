package sqlstore

import (
	"database/sql"
	"slices"

	"github.com/millrace/millrace/internal/job"
)

var (
	bodyKey = []Column{{"seq", "int8"}, {"part", "int8"}}

	putBodies = insertInto("put_bodies", "bodies",
		append(bodyKey[:2:2], Column{"data", "bytea"}),
		"ON CONFLICT (seq,part) DO UPDATE SET data=excluded.data")
	getBodies  = &Statement{"get_bodies", "SELECT seq,part,data FROM bodies WHERE seq {in $1}"}
	sizeBodies = &Statement{"size_bodies",
		"SELECT seq,CAST(sum(octet_length(data)) AS BIGINT) FROM bodies WHERE seq {in $1} GROUP BY seq"}
	deleteBodies = &Statement{"delete_bodies", "DELETE FROM bodies WHERE seq {in $1}"}
	deletePart   = &Statement{"delete_body_part",
		"DELETE FROM bodies WHERE seq {in $1} AND part=$2"}
	loadBodies = &Statement{"load_bodies",
		"SELECT seq,definition,payload,progress,result,failure FROM jobs WHERE seq {in $1}"}

	setBody             = setBodies("set_", nil)
	updateStatesAndBody = setBodies("save_with_", stateColumns)
)

// setBodies are the statements that set one body each, and other columns before it.
func setBodies(verb string, others []Column) (all [job.Parts]*Bulk) {
	for p, name := range bodyNames {
		all[p] = updateOf(verb+name, "jobs",
			slices.Concat(others, []Column{{name, "bytea"}, {"apart", "int8"}, seqColumn}))
	}
	return all
}

// storeOutOfLine writes the bodies that are too large for the row.
func (t *Tx) storeOutOfLine(jobs []*job.Job) error {
	var rows [][]any
	for _, j := range jobs {
		for p := range job.Parts {
			if j.OutOfLine&(1<<p) != 0 {
				rows = append(rows, []any{j.Seq, int64(p), *j.Body(p)})
			}
		}
	}
	return t.bulk(putBodies, rows)
}

type body struct {
	seq  int64
	part job.Part
	data blob
}

// loadOutOfLine completes jobs whose bodies are kept apart.
func (t *Tx) loadOutOfLine(jobs []*job.Job) error {
	apart := map[int64]*job.Job{}
	var seqs []int64
	for _, j := range jobs {
		if j.OutOfLine != 0 {
			apart[j.Seq] = j
			seqs = append(seqs, j.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	bodies, err := collect(t, getBodies, func(rows *sql.Rows) (b body, err error) {
		err = rows.Scan(&b.seq, &b.part, &b.data)
		return b, err
	}, t.s.Ints(seqs))
	for _, b := range bodies {
		*apart[b.seq].Body(b.part) = b.data
	}
	return err
}

// within returns the first of the jobs whose bodies kept apart have no more than
// so many bytes together, one at least.
func (t *Tx) within(bytes int64, jobs []*job.Job) ([]*job.Job, error) {
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
	if _, err := collect(t, sizeBodies, func(rows *sql.Rows) (struct{}, error) {
		var seq, size int64
		err := rows.Scan(&seq, &size)
		sizes[seq] = size
		return struct{}{}, err
	}, t.s.Ints(seqs)); err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if bytes -= sizes[j.Seq]; bytes < 0 && i > 0 {
			return jobs[:i], nil
		}
	}
	return jobs, nil
}

// LoadBodies is documented at the port.
func (t *Tx) LoadBodies(jobs []*job.Job) error {
	bySeq := make(map[int64]*job.Job, len(jobs))
	seqs := make([]int64, len(jobs))
	for i, j := range jobs {
		bySeq[j.Seq], seqs[i] = j, j.Seq
	}
	if len(seqs) == 0 {
		return nil
	}
	_, err := collect(t, loadBodies, func(rows *sql.Rows) (struct{}, error) {
		var seq int64
		var b [job.Parts]blob
		err := rows.Scan(&seq, &b[0], &b[1], &b[2], &b[3], &b[4])
		for p := range job.Parts {
			if j := bySeq[seq]; j != nil {
				*j.Body(p) = b[p]
			}
		}
		return struct{}{}, err
	}, t.s.Ints(seqs))
	if err != nil {
		return err
	}
	return t.loadOutOfLine(jobs)
}

// UpdateBodies is documented at the port.
func (t *Tx) UpdateBodies(p job.Part, jobs []*job.Job) error {
	return t.saveBodies(setBody[p], p, jobs, func(v []any, _ *job.Job) []any { return v })
}

// UpdateStateAndBody is documented at the port.
func (t *Tx) UpdateStateAndBody(p job.Part, jobs []*job.Job) error {
	if err := checkText(updateStatesAndBody[p].Name, jobs); err != nil {
		return err
	}
	return t.saveBodies(updateStatesAndBody[p], p, jobs, appendState)
}

// saveBodies runs b, which sets a body after the values of other columns.
func (t *Tx) saveBodies(b *Bulk, p job.Part, jobs []*job.Job,
	others func([]any, *job.Job) []any) error {
	var rows [][]any
	var apart []*job.Job
	var inline []int64 // were apart and are not any more
	for _, j := range jobs {
		data, was := *j.Body(p), j.OutOfLine&(1<<p) != 0
		if len(data) > maxInlineBody {
			j.OutOfLine |= 1 << p
			apart = append(apart, j)
			data = nil
		} else if was {
			j.OutOfLine &^= 1 << p
			inline = append(inline, j.Seq)
		}
		rows = append(rows, append(others(make([]any, 0, len(b.Columns)), j), nullable(data),
			int64(j.OutOfLine), j.Seq))
	}
	if err := t.bulk(b, rows); err != nil {
		return err
	}
	if len(inline) > 0 {
		if _, err := t.exec(deletePart, t.s.Ints(inline), int64(p)); err != nil {
			return err
		}
	}
	rows = rows[:0]
	for _, j := range apart {
		rows = append(rows, []any{j.Seq, int64(p), *j.Body(p)})
	}
	return t.bulk(putBodies, rows)
}
