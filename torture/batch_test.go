package main

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestOperations: a batch is one request, and each job in it one operation. A claim is one,
// whatever it is given, and what was refused or is unknown is none.
func TestOperations(t *testing.T) {
	t.Parallel()
	jobs := []made{{Job: "a"}, {Job: "b"}, {Job: "c"}}
	v := verdict{}
	for _, o := range []op{
		{ID: 1, Class: classOK, Status: 202, Verb: "submit", Made: jobs},
		{ID: 2, Class: classOK, Status: 200, Verb: "claim", Claimed: make([]claimedJob, 3)},
		{ID: 3, Batch: 3, Class: classFailed, Status: 200, Verb: "complete"}, // its run is lost
		{ID: 4, Batch: 3, Class: classOK, Status: 200, Verb: "complete"},
		{ID: 5, Batch: 3, Class: classOK, Status: 200, Verb: "complete"},
		{ID: 6, Batch: 6, Class: classUnknown, Verb: "complete"},
		{ID: 7, Batch: 6, Class: classUnknown, Verb: "complete"},
		{ID: 8, Batch: 8, Class: classFailed, Verb: "heartbeat"}, // never sent
		{ID: 9, Batch: 8, Class: classFailed, Verb: "heartbeat"},
		{ID: 10, Class: classUnknown, Status: 429, Verb: "submit", Made: jobs},
	} {
		v.count(&o, map[string]bool{})
	}
	got := []int{v.Operations, v.Requests, v.Acknowledged, v.Refused, v.Unknown, v.Created}
	if want := []int{6, 6, 3, 1, 2, 3}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("operations, requests, acknowledged, refused, unknown, jobs are %d, want %d", got,
			want)
	}
}

// TestLedgerOfBatches: the ops of one request have its times, and name the first of them.
func TestLedgerOfBatches(t *testing.T) {
	t.Parallel()
	l, err := newLedger(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	alone, batch := &op{}, []*op{{}, {}}
	for _, all := range [][]*op{{alone}, batch} {
		l.begin(all...)
		l.end(all...)
	}
	all, err := l.close()
	if err != nil || len(all) != 3 || alone.Batch != 0 || batch[0].ID != 2 || batch[1].ID != 3 {
		t.Errorf("%d ops: %v", len(all), err)
	}
	for _, o := range batch {
		if o.Batch != 2 || o.Invoked != batch[0].Invoked || o.Returned != batch[0].Returned ||
			o.Returned == 0 {
			t.Errorf("got %+v", o)
		}
	}
}

// TestAnswersToBatches: each run of a request is accepted or refused as its entry of the answer
// says, and an answer that is not about them all is a fault.
func TestAnswersToBatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		read   func([]*op) func(*op, []byte) error
		answer string
		want   string // the classes; "" for a fault
	}{
		{readKnown, `[{"known":true},{"known":false}]`, "[ok failed]"},
		{readKnown, `[{"known":true}]`, ""},
		{readKnown, `[{"known":true},{}]`, ""},
		{readOutcomes, `{"outcomes":[{"run_id":"1","code":"RUN_LOST"},
			{"run_id":"2","status":"COMPLETED"}]}`, "[failed ok]"},
		{readOutcomes, `{"outcomes":[{"run_id":"1","status":"COMPLETED"}]}`, ""},
		{readOutcomes, `{"outcomes":[{"run_id":"2","status":"COMPLETED"},
			{"run_id":"1","status":"COMPLETED"}]}`, ""},
		{readOutcomes, `{"outcomes":[{"run_id":"1"},{"run_id":"2","status":"COMPLETED"}]}`, ""},
	} {
		all := []*op{{Run: "1", Class: classOK}, {Run: "2", Class: classOK}}
		err := c.read(all)(all[0], []byte(c.answer))
		got := fmt.Sprint([]class{all[0].Class, all[1].Class})
		if (err != nil) != (c.want == "") || (err == nil && got != c.want) {
			t.Errorf("%s: %s, %v", c.answer, got, err)
		}
	}
}
