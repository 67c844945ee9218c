package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// This is all that a move knows of the schema: which tables there are, and by which keys they are
// read. Columns are those that both databases have, by their names, and must be the same, so a
// table that gets a column needs no change here; a new table does, and a test says so.

// table is a table whose rows are moved, in the order of its key.
type table struct {
	name string
	key  []string
}

// tables are all tables but those that a move leaves, each with its primary key. A test compares
// them with the schemas.
var tables = []table{
	{"jobs", []string{"seq"}},
	{"waiting", []string{"seq"}},
	{"ready", []string{"seq"}},
	{"leases", []string{"seq"}},
	{"finished", []string{"seq"}},
	{"searchable", []string{"seq"}},
	{"bodies", []string{"seq", "part"}},
	{"edges", []string{"dependent", "dependency"}},
	{"events", []string{"id"}},
	{"outbox", []string{"id"}},
	{"dead_letters", []string{"id"}},
	{"queues", []string{"queue_hash"}},
	{"counts", []string{"queue_hash", "slot"}},
	{"done_counts", []string{"contract", "queue"}},
	{records, []string{"kind", "key"}},
}

const records = "records"

// numbered are the tables that give their rows numbers, none of which is ever used again.
var numbered = []string{"jobs", "events", "outbox", "dead_letters"}

// ownColumns are columns that one kind of database alone has and fills by itself.
var ownColumns = []string{
	"ready.arrived", // when the row came into the table, which PostgreSQL sets
}

// columns returns the columns of all tables, in the order of their names.
func (s *Database) columns(ctx context.Context) (map[string][]string, error) {
	rows, err := s.Conn.QueryContext(ctx, s.Columns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		if !slices.Contains(ownColumns, table+"."+column) {
			all[table] = append(all[table], column)
		}
	}
	for _, columns := range all {
		slices.Sort(columns)
	}
	return all, rows.Err()
}

// commonColumns returns the columns of the tables that are moved, which are the same on both
// databases.
func commonColumns(ctx context.Context, from, to *Database) (map[string][]string, error) {
	have, err := from.columns(ctx)
	if err != nil {
		return nil, err
	}
	want, err := to.columns(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if len(have[t.name]) == 0 || !slices.Equal(have[t.name], want[t.name]) {
			return nil, fmt.Errorf("the table %s has the columns %v in %s and %v in %s", t.name,
				have[t.name], from.Name, want[t.name], to.Name)
		}
	}
	return have, nil
}

// condition returns the condition for the rows of a table that are moved, with its parameters; ""
// for all.
func (t *table) condition(skipKinds []string) (text string, args []any) {
	if t.name != records {
		return "", nil
	}
	placeholders := make([]string, len(skipKinds))
	for i, kind := range skipKinds {
		placeholders[i] = fmt.Sprintf("$%d", i+1)
		args = append(args, kind)
	}
	return "kind NOT IN (" + strings.Join(placeholders, ",") + ")", args
}

// where puts conditions behind a statement.
func where(conditions ...string) string {
	conditions = slices.DeleteFunc(conditions, func(c string) bool { return c == "" })
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

// count counts the rows of a table that are moved.
func (t *table) count(ctx context.Context, s *Database, skipKinds []string) (int64, error) {
	condition, args := t.condition(skipKinds)
	return s.count(ctx, "SELECT count(*) FROM "+t.name+where(condition), args...)
}
