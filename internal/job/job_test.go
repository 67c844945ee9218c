package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/job"
)

// The hashes of identities and queues are stored in the databases of users: these values never
// change.
func TestIdentsAndLanesAreStable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id   job.ID
		want string
	}{
		{job.ID{}, "709e80c88487a2411e1ee4dfb9f22a86"},
		{job.ID{JobType: "relay", Scope: "mails", Key: "a"}, "57a60d9ea7d7de4df1b1fd937ad9d2a6"},
		{job.ID{JobType: "taskflow", Key: "0198c0de-0000-7000-8000-000000000001"},
			"3358649cb7ba0ff6998c0a46d27113d4"},
		{job.ID{JobType: "relay", Scope: strings.Repeat("é", 1024),
			Key: strings.Repeat("x", 1024)}, "aa7f51051b647b118984a883523d16a9"},
	} {
		if got := fmt.Sprintf("%x", c.id.IdentityHash()); got != c.want {
			t.Errorf("identity hash of %.40v: got %s, want %s", c.id, got, c.want)
		}
	}
	for _, c := range []struct {
		jobType, queue string
		want           job.QueueHash
	}{{"relay", "mails", 778451479881273989}, {"relay", "", 4504490694320614244},
		{"taskflow", "default", -5008193951135269284}} {
		if got := job.QueueHashOf(c.jobType, c.queue); got != c.want {
			t.Errorf("queue hash of %s %s: got %d, want %d", c.jobType, c.queue, got, c.want)
		}
		if j := (&job.Job{ID: job.ID{JobType: c.jobType},
			Queue: c.queue}); j.QueueHash() != c.want {
			t.Errorf("queue hash of %s %s: got %d, want %d", c.jobType, c.queue, j.QueueHash(), c.want)
		}
	}
}

// What is cut differently is something else (G-X-08).
func TestIdentsOfPartsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[job.IdentityHash]job.ID{}
	hashes := map[job.QueueHash]string{}
	for _, parts := range []string{"a|b|c", "ab||c", "a|bc|", "|ab|c", "abc||", "||abc", "|abc|",
		"a||bc", "a|b|C", "a|b|c\x00", "a|b\x01c|", "a\x01b||c"} {
		p := strings.Split(parts, "|")
		id := job.ID{JobType: p[0], Scope: p[1], Key: p[2]}
		if other, twice := seen[id.IdentityHash()]; twice {
			t.Errorf("%v and %v have one identity hash", id, other)
		}
		seen[id.IdentityHash()] = id
	}
	for _, q := range []string{"a|b", "ab|", "|ab"} {
		p := strings.Split(q, "|")
		l := job.QueueHashOf(p[0], p[1])
		if other, twice := hashes[l]; twice {
			t.Errorf("%s and %s have one queue hash", q, other)
		}
		hashes[l] = q
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	j := &job.Job{Definition: []byte("0"), Payload: []byte("1"), Progress: []byte("2"),
		Result: []byte("3"), Failure: []byte("4")}
	for p := range job.Bodies {
		if got := string(*j.Body(p)); got != fmt.Sprint(int(p)) {
			t.Errorf("body %d is %s", p, got)
		}
	}
	*j.Body(job.Result) = []byte("new")
	if string(j.Result) != "new" {
		t.Error("Body is not the field")
	}
}

// G-X-05: higher priority, then earlier order time, then earlier insertion.
func TestCompareClaim(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	want := []*job.Job{
		{Priority: 2, OrderTime: at(9), Seq: 9},
		{Priority: 1, OrderTime: at(1), Seq: 8},
		{Priority: 1, OrderTime: at(2), Seq: 1},
		{Priority: 1, OrderTime: at(2), Seq: 2},
		{OrderTime: at(2), Seq: 3},
		{Priority: -1, Seq: 0},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, job.CompareClaim)
	if !slices.Equal(got, want) {
		t.Errorf("sorted to %v", got)
	}
	if job.CompareClaim(want[0], want[0]) != 0 {
		t.Error("a job is not before itself")
	}
}

// It is an order: no two different jobs are equal, it turns with its sides, and it carries over.
func TestCompareClaimIsAnOrder(t *testing.T) {
	t.Parallel()
	jobs := rapid.Custom(func(t *rapid.T) *job.Job {
		small := rapid.IntRange(-1, 1)
		return &job.Job{Priority: small.Draw(t, "priority"),
			OrderTime: time.Unix(int64(small.Draw(t, "time")), 0), Seq: int64(small.Draw(t, "seq"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := jobs.Draw(t, "a"), jobs.Draw(t, "b"), jobs.Draw(t, "c")
		ab, ba, bc, ac := job.CompareClaim(a, b), job.CompareClaim(b, a), job.CompareClaim(b, c),
			job.CompareClaim(a, c)
		same := a.Priority == b.Priority && a.OrderTime.Equal(b.OrderTime) && a.Seq == b.Seq
		if ab != -ba || (ab == 0) != same || (ab < 0 && bc < 0 && ac >= 0) {
			t.Fatalf("%d %d %d %d", ab, ba, bc, ac)
		}
	})
}
