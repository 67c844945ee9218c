package taskflow_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// page is an answer of a search.
type page struct {
	Items      []jobView `json:"items"`
	NextCursor *string   `json:"next_cursor"`
	HasMore    bool      `json:"has_more"`
}

// search asks for a page; query are names and values.
func (w *world) search(t testing.TB, query ...string) page {
	t.Helper()
	var header []string
	if far := strings.Repeat("9", 20); slices.ContainsFunc(query, func(v string) bool {
		return v == "" || strings.HasSuffix(v, far)
	}) {
		header = []string{beyondDocument, "1"}
	}
	p := testkit.DecodeReply[page](t, w.Do(t, "GET", jobsPath+"?"+pairs(query...), "",
		header...).WantStatus(t, 200))
	if p.HasMore != (p.NextCursor != nil) {
		t.Errorf("has_more is %t with cursor %v", p.HasMore, p.NextCursor)
	}
	return p
}

func pairs(query ...string) string {
	var all []string
	for i := 0; i < len(query); i += 2 {
		all = append(all, query[i]+"="+url.QueryEscape(query[i+1]))
	}
	return strings.Join(all, "&")
}

// allPages reads all pages.
func (w *world) allPages(t testing.TB, query ...string) (all []jobView) {
	t.Helper()
	asked := query
	for range 1000 {
		p := w.search(t, asked...)
		all = append(all, p.Items...)
		if !p.HasMore {
			return all
		}
		asked = append(slices.Clone(query), "cursor", *p.NextCursor)
	}
	t.Fatal("the pages do not end")
	return nil
}

// names are the names of jobs in their order.
func names(all []jobView) string {
	var each []string
	for _, v := range all {
		each = append(each, v.Name)
	}
	return strings.Join(each, " ")
}

func TestSearch(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-104 nothing at all", func(t *testing.T) {
			assertEqual(t, "body", w.Do(t, "GET", jobsPath, "").WantStatus(t, 200).Body,
				`{"items":[],"next_cursor":null,"has_more":false}`)
		})
		made := map[string]jobView{}
		for i, c := range []struct{ queue, priority string }{{"a", "1"}, {"a", "5"}, {"b", "5"},
			{"b", "10"}, {"a", "9"}, {"c", "3"}} {
			name := fmt.Sprint("j", i)
			made[name] = w.create(t, nameMember(name), `"queue":"`+c.queue+`"`,
				`"priority":`+c.priority)
			w.clock.Advance(time.Second)
		}
		w.succeed(t, made["j0"].ID)
		w.fail(t, made["j3"].ID, false)
		blocked := w.create(t, nameMember("j6"), dependenciesMember(made["j3"].ID), `"queue":"a"`)
		assertEqual(t, "blocked", blocked.Status, "BLOCKED")
		w.clock.Advance(time.Second)
		w.create(t, nameMember("j7"), dependenciesMember(made["j1"].ID), `"queue":"b"`)
		start := testkit.StartTime
		at := func(seconds int) string {
			return start.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339)
		}
		for _, c := range []struct {
			name  string
			query []string
			want  string
		}{
			{"TF-087 TF-096 all, newest first", nil, "j7 j6 j5 j4 j3 j2 j1 j0"},
			{"TF-088 queue", []string{"queue", "a"}, "j6 j4 j1 j0"},
			{"TF-088 no part of a queue", []string{"queue", "aa"}, ""},
			{"TF-088 no queue at all", []string{"queue", "a-\x00"}, ""},
			{"TF-089 READY", []string{"status", "READY"}, "j5 j4 j2 j1"},
			{"TF-089 PENDING", []string{"status", "PENDING"}, "j7"},
			{"TF-089 COMPLETED", []string{"status", "COMPLETED"}, "j0"},
			{"TF-089 FAILED", []string{"status", "FAILED"}, "j3"},
			{"TF-089 BLOCKED", []string{"status", "BLOCKED"}, "j6"},
			{"TF-089 RUNNING", []string{"status", "RUNNING"}, ""},
			{"TF-090 priority_min", []string{"priority_min", "9"}, "j4 j3"},
			{"TF-091 priority_max", []string{"priority_max", "3"}, "j5 j0"},
			{"TF-090 TF-091 both", []string{"priority_min", "5", "priority_max", "9"},
				"j7 j6 j4 j2 j1"},
			{"TF-090 above what there is", []string{"priority_min", "11"}, ""},
			{"TF-090 below what there is", []string{"priority_min", "-99999999999999999999"},
				"j7 j6 j5 j4 j3 j2 j1 j0"},
			{"TF-091 below what there is", []string{"priority_max", "0"}, ""},
			{"TF-091 above what there is", []string{"priority_max", "99999999999999999999"},
				"j7 j6 j5 j4 j3 j2 j1 j0"},
			{"TF-090 TF-091 the wrong way round",
				[]string{"priority_min", "6", "priority_max", "5"}, ""},
			{"TF-092 created_after is inclusive", []string{"created_after", at(4)}, "j7 j6 j5 j4"},
			{"TF-092 a microsecond later",
				[]string{"created_after",
					start.Add(4*time.Second + time.Microsecond).Format(time.RFC3339Nano)},
				"j7 j6 j5"},
			{"TF-093 created_before is exclusive", []string{"created_before", at(2)}, "j1 j0"},
			{"TF-093 with an offset", []string{"created_before",
				start.Add(2 * time.Second).In(time.FixedZone("", 7200)).Format(time.RFC3339)},
				"j1 j0"},
			{"TF-093 before everything", []string{"created_before", "0001-01-01T00:00:00Z"}, ""},
			{"TF-092 TF-093 an empty span",
				[]string{"created_after", at(3), "created_before", at(3)}, ""},
			{"TF-094 queue and status", []string{"queue", "a", "status", "READY"}, "j4 j1"},
			{"TF-094 all filters", []string{"queue", "a", "status", "READY", "priority_min", "2",
				"priority_max", "9", "created_after", at(1), "created_before", at(4)}, "j1"},
			{"TF-094 empty ones are none",
				[]string{"queue", "", "status", "", "priority_min", "", "limit", "", "cursor", "",
					"created_after", ""}, "j7 j6 j5 j4 j3 j2 j1 j0"},
			{"TF-094 unknown ones are ignored", []string{"colour", "red", "queue", "c"}, "j5"},
			{"TF-094 of two the first counts", []string{"queue", "c", "queue", "a"}, "j5"},
			{"TF-104 no match", []string{"queue", "zzz"}, ""},
			{"TF-097 limit", []string{"limit", "2"}, "j7 j6"},
			{"TF-097 the greatest limit", []string{"limit", "100"}, "j7 j6 j5 j4 j3 j2 j1 j0"},
		} {
			t.Run(c.name, func(t *testing.T) {
				assertEqual(t, "names", names(w.search(t, c.query...).Items), c.want)
			})
		}
		t.Run("TF-087 items are whole jobs", func(t *testing.T) {
			got := w.search(t, "queue", "b", "status", "PENDING")
			assertEqual(t, "job", fmt.Sprintf("%+v", got.Items[0]),
				fmt.Sprintf("%+v", w.get(t, got.Items[0].ID)))
		})
		for _, query := range []string{"status=ready", "status=DONE", "priority_min=x",
			"priority_max=1.5", "priority_min=%2B1", "priority_max=--1", "created_after=yesterday",
			"created_before=2026-01-01", "limit=0", "limit=101", "limit=x", "limit=-1",
			"limit=99999999999999999999", "queue=%zz"} {
			t.Run("TF-095 "+query, func(t *testing.T) {
				name, _, _ := strings.Cut(query, "=")
				w.Do(t, "GET", jobsPath+"?"+query, "").WantError(t, 400, "VALIDATION_ERROR", name)
			})
		}
		id := made["j0"].ID
		for name, cursor := range map[string]string{"no Base64": "!!!",
			"no bar": code("2026-03-01T12:00:00Z"), "a bad time": code("yesterday|" + id),
			"a bad id": code("2026-03-01T12:00:00Z|7"),
			"two bars": code("2026-03-01T12:00:00Z|" + id + "|"), "a bar alone": code("|"),
			"a rest": code("2026-03-01T12:00:00Z|"+id) + "x"} {
			t.Run("TF-102 "+name, func(t *testing.T) {
				w.Do(t, "GET", jobsPath+"?"+pairs("cursor", cursor), "").WantError(t, 400,
					"VALIDATION_ERROR", "cursor")
			})
		}
	})
}

func code(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestPages(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for i := range 25 {
			w.create(t, fmt.Sprintf(`"queue":"p","name":"%d"`, i))
			if i%5 == 4 { // five at a time are of the same microsecond
				w.clock.Advance(time.Second + time.Microsecond)
			}
		}
		t.Run("TF-096 equal times by id", func(t *testing.T) {
			all := w.allPages(t, "queue", "p", "limit", "100")
			sorted := slices.IsSortedFunc(all, func(a, b jobView) int {
				if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
					return c
				}
				return strings.Compare(a.ID, b.ID)
			})
			assertEqual(t, "sorted", sorted && len(all) == 25, true)
		})
		t.Run("TF-097 twenty are usual", func(t *testing.T) {
			assertEqual(t, "items", len(w.search(t, "queue", "p").Items), 20)
		})
		t.Run("TF-098 TF-099 TF-101 every limit gives the same walk", func(t *testing.T) {
			whole := names(w.allPages(t, "queue", "p", "limit", "100"))
			for limit := 1; limit <= 26; limit++ {
				assertEqual(t, fmt.Sprint("limit ", limit),
					names(w.allPages(t, "queue", "p", "limit", fmt.Sprint(limit))), whole)
			}
		})
		t.Run("TF-105 exactly as many as asked for", func(t *testing.T) {
			assertEqual(t, "has_more", w.search(t, "queue", "p", "limit", "25").HasMore, false)
			assertEqual(t, "has_more", w.search(t, "queue", "p", "limit", "24").HasMore, true)
			last := w.search(t, "queue", "p", "limit", "5", "cursor",
				*w.search(t, "queue", "p", "limit", "20").NextCursor)
			assertEqual(t, "the last page",
				fmt.Sprint(len(last.Items), last.HasMore, last.NextCursor), "5 false <nil>")
		})
		t.Run("TF-100 TF-103 what a cursor is", func(t *testing.T) {
			p := w.search(t, "queue", "p", "limit", "7")
			raw, err := base64.StdEncoding.DecodeString(*p.NextCursor)
			last := p.Items[6]
			if err != nil || string(raw) != last.CreatedAt.Format(time.RFC3339Nano)+"|"+last.ID ||
				!strings.Contains(string(raw), ".00000") {
				t.Errorf("%q after %+v: %v", raw, last, err)
			}
			again := w.search(t, "queue", "p", "limit", "7", "cursor",
				strings.TrimRight(*p.NextCursor, "="))
			assertEqual(t, "without padding", names(again.Items),
				names(w.search(t, "queue", "p", "limit", "7", "cursor", *p.NextCursor).Items))
		})
		t.Run("TF-101 while jobs come and go", func(t *testing.T) {
			var kept []string
			for _, v := range w.allPages(t, "queue", "p") {
				kept = append(kept, v.ID)
			}
			gone := kept[9]
			kept = slices.Delete(slices.Clone(kept), 9, 10)
			seen := map[string]int{}
			query := []string{"queue", "p", "limit", "3"}
			for i := 0; ; i++ {
				p := w.search(t, query...)
				for _, v := range p.Items {
					seen[v.ID]++
				}
				w.create(t, `"queue":"p"`)
				if i == 1 { // a job of the next page, and with it a place moves up
					w.Do(t, "DELETE", pathOf(gone), "").WantStatus(t, 204)
				}
				if !p.HasMore {
					break
				}
				query = []string{"queue", "p", "limit", "3", "cursor", *p.NextCursor}
			}
			for _, id := range kept {
				assertEqual(t, id, seen[id], 1)
			}
		})
	})
}
