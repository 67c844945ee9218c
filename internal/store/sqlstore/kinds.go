package sqlstore

import (
	"bytes"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A column of a job is described once, and all statements are made of the descriptions: which of
// them write it (its group of fields), how a field becomes a value and a value a field, and whether
// two jobs have the same, so that a change writes what has changed. A field that gets a column is
// one line in the table of columns, beside the migration.
//
// The kinds of columns, by the type of their field. A value that is zero is NULL, but for texts and
// where one of the functions always, alwaysIn and copyIn says otherwise.

// sameField returns the same of a column whose value depends on one field.
func sameField[T comparable](field func(*job.Job) *T) func(a, b *job.Job) bool {
	return func(a, b *job.Job) bool { return *field(a) == *field(b) }
}

// intColumn is a column of a field that is a number.
func intColumn[T ~int | ~int64 | ~uint8](name string, group store.Fields,
	field func(*job.Job) *T) jobColumn {
	return jobColumn{
		Column: Column{name, Integer},
		group:  group,
		get:    func(j *job.Job) any { return nonZero(int64(*field(j))) },
		same:   sameField(field),
		set: func(j *job.Job, value any) error {
			n, err := asInt(value)
			*field(j) = T(n)
			return err
		},
	}
}

// textColumn is a column of a field that is a text.
func textColumn[T ~string](name string, group store.Fields, field func(*job.Job) *T) jobColumn {
	text := func(j *job.Job) string { return string(*field(j)) }
	return jobColumn{
		Column: Column{name, Text},
		group:  group,
		get:    func(j *job.Job) any { return text(j) },
		same:   sameField(field),
		set: func(j *job.Job, value any) error {
			s, ok := value.(string)
			if !ok {
				return fmt.Errorf("%T is not a text", value)
			}
			*field(j) = T(s)
			return nil
		},
		text: text,
	}
}

// timeColumn is a column of a field that is a time, see Micros; NULL where it is not set.
func timeColumn(name string, group store.Fields, field func(*job.Job) *time.Time) jobColumn {
	return jobColumn{
		Column: Column{name, Integer},
		isTime: true,
		group:  group,
		get: func(j *job.Job) any {
			if field(j).IsZero() {
				return nil
			}
			return Micros(*field(j))
		},
		same: sameField(field),
		set: func(j *job.Job, value any) error {
			if value == nil {
				*field(j) = time.Time{}
				return nil
			}
			us, err := asInt(value)
			*field(j) = fromMicros(us)
			return err
		},
	}
}

// durationColumn is a column of a field that is a duration, in microseconds.
func durationColumn(name string, group store.Fields,
	field func(*job.Job) *time.Duration) jobColumn {
	return jobColumn{
		Column: Column{name, Integer},
		group:  group,
		get:    func(j *job.Job) any { return nonZero(field(j).Microseconds()) },
		same:   sameField(field),
		set: func(j *job.Job, value any) error {
			us, err := asInt(value)
			*field(j) = time.Duration(us) * time.Microsecond
			return err
		},
	}
}

// hashColumn is a column of a field of 16 bytes, NULL where they are zero.
func hashColumn[T ~[16]byte](name string, group store.Fields, field func(*job.Job) *T) jobColumn {
	return jobColumn{
		Column: Column{name, Bytes},
		group:  group,
		get: func(j *job.Job) any {
			if *field(j) == (T{}) {
				return nil
			}
			return (*field(j))[:]
		},
		same: sameField(field),
		set: func(j *job.Job, value any) error {
			data, ok := value.([]byte)
			if !ok && value != nil {
				return fmt.Errorf("%T is not bytes", value)
			}
			if *field(j) = (T{}); len(data) == len(T{}) {
				*field(j) = T(data)
			}
			return nil
		},
	}
}

// bodyColumn is the column of a body, NULL where there is none or it is out of line.
func bodyColumn(name string, p job.Body) jobColumn {
	return jobColumn{
		Column: Column{name, Bytes},
		get: func(j *job.Job) any {
			if j.OutOfLine&(1<<p) != 0 {
				return nil
			}
			return nullable(*j.Body(p))
		},
		same: func(a, b *job.Job) bool {
			x, y := *a.Body(p), *b.Body(p)
			return (x == nil) == (y == nil) && bytes.Equal(x, y) &&
				(a.OutOfLine^b.OutOfLine)&(1<<p) == 0
		},
		set: func(j *job.Job, value any) error { return (*blob)(j.Body(p)).Scan(value) },
	}
}

// derivedColumn is a column that follows from other fields. Statements select by it and no field is
// read from it.
func derivedColumn(name string, t Type, group store.Fields, get func(*job.Job) any,
	same func(a, b *job.Job) bool) jobColumn {
	return jobColumn{Column: Column{name, t}, group: group, get: get, same: same}
}

// hasOpenDeps is stored beside their number so that counting it down changes no index.
func hasOpenDeps(j *job.Job) any {
	if j.OpenDeps != 0 {
		return int64(1)
	}
	return nil
}

// always stores the zero value of a column as such instead of NULL.
func always(c jobColumn) jobColumn {
	get, zero := c.get, any(int64(0))
	if c.get(&job.Job{}) == nil && c.isTime {
		zero = Micros(time.Time{})
	}
	c.get = func(j *job.Job) any {
		if value := get(j); value != nil {
			return value
		}
		return zero
	}
	return c
}

// alwaysIn is always for the jobs of one phase.
func alwaysIn(p job.Phase, c jobColumn) jobColumn {
	get, getAlways, same := c.get, always(c).get, c.same
	c.get = func(j *job.Job) any {
		if j.Phase == p {
			return getAlways(j)
		}
		return get(j)
	}
	c.same = func(a, b *job.Job) bool { return a.Phase == b.Phase && same(a, b) }
	return c
}

// copyIn makes a column one that has the values of another for the jobs of one phase and is NULL
// for others. No field is read from it.
func copyIn(p job.Phase, c jobColumn) jobColumn {
	get, same := c.get, c.same
	c.get = func(j *job.Job) any {
		if j.Phase == p {
			return get(j)
		}
		return nil
	}
	c.same = func(a, b *job.Job) bool {
		return a.Phase == b.Phase && (a.Phase != p || same(a, b))
	}
	c.set, c.text = nil, nil
	return c
}

// bodySetColumn is the column of those bits of OutOfLine that are about some parts.
func bodySetColumn(name string, parts uint8) jobColumn {
	return jobColumn{
		Column: Column{name, Integer},
		get:    func(j *job.Job) any { return nonZero(int64(j.OutOfLine & parts)) },
		same:   func(a, b *job.Job) bool { return (a.OutOfLine^b.OutOfLine)&parts == 0 },
		set: func(j *job.Job, value any) error {
			bits, err := asInt(value)
			j.OutOfLine = j.OutOfLine&^parts | uint8(bits)
			return err
		},
	}
}

// nonZero returns NULL for 0.
func nonZero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// searchColumn holds the position of a job in the order of a search, newest first, and NULL
// where no search finds the job.
func searchColumn(name string, group store.Fields) jobColumn {
	return jobColumn{
		Column: Column{name, Integer},
		group:  group,
		get: func(j *job.Job) any {
			if j.Searchable {
				return -Micros(j.CreatedAt)
			}
			return nil
		},
		same: func(a, b *job.Job) bool {
			return a.Searchable == b.Searchable && (!a.Searchable || a.CreatedAt == b.CreatedAt)
		},
		set: func(j *job.Job, value any) error {
			_, err := asInt(value)
			j.Searchable = value != nil
			return err
		},
	}
}

// asInt returns the integer that a driver has read, 0 for NULL; any other type is an error.
func asInt(value any) (int64, error) {
	n, ok := value.(int64)
	if !ok && value != nil {
		return 0, fmt.Errorf("%T is not an integer", value)
	}
	return n, nil
}
