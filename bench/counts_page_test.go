package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// pageBatch is the size of the batches in the tables of docs/job-costs.md.
const pageBatch = 100

// TestCostsOfThePage holds what a job costs: on both databases each figure of docs/job-costs.md is
// what is counted now. Where one grows the change that makes it grow has to say so on the page. It
// does not run beside other tests, as allocations are those of the process.
func TestCostsOfThePage(t *testing.T) {
	for _, db := range countedDatabases {
		t.Run(db.name, func(t *testing.T) {
			page := costsOfThePage(t, db)
			count, err := db.setup(t.Context(), countsEnv(t), countedRounds)
			skipWithout(t, err)
			for _, kind := range jobKinds {
				costs, err := count(t.Context(), kind, pageBatch)
				skipWithout(t, err)
				for _, c := range costs {
					row := kind.name + ", " + c.verb
					compareCosts(t, db, row, page[row], c)
					delete(page, row)
				}
			}
			for row := range page {
				t.Errorf("the page has %s, which is not counted", row)
			}
		})
	}
}

// costsOfThePage reads the table of a database: the figures of each row, those of the statements
// first, and the others in the order of the columns.
func costsOfThePage(t *testing.T, db countedDatabase) map[string][]float64 {
	t.Helper()
	page, err := os.ReadFile("../docs/job-costs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n"+db.name+":\n\n")
	table, _, _ = strings.Cut(table, "\n\n")
	head := "| job | verb | statements in a transaction | statements |"
	for _, c := range db.columns {
		head += " " + c.heading + " |"
	}
	lines := strings.Split(table, "\n")
	if lines[0] != head {
		t.Fatalf("the table has the columns %s, want %s", lines[0], head)
	}
	rows := map[string][]float64{}
	for _, line := range lines[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4+len(db.columns) {
			t.Fatalf("a row has %d cells: %s", len(cells), line)
		}
		var values []float64
		for _, cell := range cells[2:] {
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			values = append(values, v)
		}
		rows[cells[0]+", "+cells[1]] = values
	}
	return rows
}

// compareCosts compares what a verb costs a job with a row of the page.
func compareCosts(t *testing.T, db countedDatabase, row string, page []float64, c verbCost) {
	t.Helper()
	if len(page) == 0 {
		t.Errorf("the page does not have %s", row)
		return
	}
	compare := func(name string, want, got, within float64) {
		if math.Abs(got-want) > within {
			t.Errorf("%s: %s: %.3f, not %v", row, name, got, want)
		}
	}
	compare("statements in a transaction", page[0], c.inTransaction, 0.05)
	compare("statements", page[1], c.cost[figStatements], 0.001+0.01*page[1])
	for i, column := range db.columns {
		want := page[2+i]
		compare(column.heading, want, c.cost[column.figure], toleranceOf(column.figure, want))
	}
}

// toleranceOf is by how much a figure may differ: rows and entries by less than one, as most are
// counted. The few of a publisher depend on where rows are placed, which decides how many updates
// are HOT, how many rows are locked on another page, and how many bytes the log has. Runtime and
// driver have allocations of their own beside a verb.
func toleranceOf(f figure, value float64) float64 {
	switch f {
	case figHot, figLocked:
		return 0.02 + 0.3*value
	case figLog, figHeap:
		return 10 + 0.03*value
	case figAllocations:
		return 1 + 0.03*value
	default:
		return 0.0101 + 0.02*value
	}
}
