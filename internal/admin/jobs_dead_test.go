package admin_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// AD-010, AD-018: a list of dead jobs has, after those that are stored, the jobs of Relay that are
// gone and left an open dead letter, with all filters, in pages of any size in either order, on
// both databases; the counts by phase have them too, and no other list or count has.
func TestListDeadJobs(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		n := &named{w, map[int64]string{}, map[string]jobState{}}
		n.add(w.failTask(t, "mail", `{"type":"t","error":"no answer"}`)) // a
		n.add(w.failRun(t))                                              // b
		for _, lost := range [][2]string{{"mail", "x"}, {"other", "y"}, {"mail", "z"}} {
			w.lose(t, lost[0], lost[1])
		}
		deadLetters := w.deadLetters(t, "?contract=relay", 3)
		for _, l := range deadLetters.Items {
			n.add(jobState{Number: l.Number, ID: l.JobID}) // c, d, e: x, y, z
		}
		third := fmt.Sprint(deadLetters.Items[2].Number)
		n.wantDead(t, map[string]string{
			"phase=dead": "ab cde", "phase=dead,done": "ab cde", "phase=done": "", "": "ab",
			"phase=ready,waiting,leased":       "",
			"phase=dead&contract=relay":        " cde",
			"phase=dead&contract=taskflow":     "a",
			"phase=dead&queue=mail":            "a ce",
			"phase=dead&id=y":                  " d",
			"phase=dead&number=" + third:       " e",
			"phase=dead&error=no+heartbeat":    " cde",
			"phase=dead&error=NO+A":            "a",
			"phase=dead&min_attempts=2":        "",
			"phase=dead&state=FAILED":          "ab",
			"phase=dead&kind=none":             "",
			"contract=relay":                   "",
			"contract=relay&id=y":              "",
			"phase=dead&queue=nobody":          "",
			"phase=dead&contract=webhook":      "",
			"phase=dead&contract=relay&id=one": "",
		}, 5)
		page := get[jobsPage](t, w.world, "/admin/v1/jobs?phase=dead&contract=relay&limit=1")
		if i := page.Items[0]; i["state"] != "gone" || i["phase"] != "dead" || i["id"] != "x" ||
			!strings.HasPrefix(fmt.Sprint(i["error"]), "no heartbeat within 60 s in attempt 1") {
			t.Errorf("AD-011 the item is %v", i)
		}
		w.replay(t, deadLetters.Items[0].ID, "").WantStatus(t, 200)
		w.do(t, w.api.Token(), "DELETE", fmt.Sprint("/admin/v1/dead-letters/", deadLetters.Items[1].ID),
			"").WantStatus(t, 204)
		n.wantDead(t, map[string]string{"phase=dead": "ab e", "phase=dead&number=" + third: " e",
			"phase=dead&id=x": "", "phase=dead&id=y": ""}, 3)
	})
}

// wantDead fails unless queries list these jobs: those that are stored and, after a blank, those
// that are gone. The counts have so many dead ones.
func (n *named) wantDead(t *testing.T, queries map[string]string, dead int) {
	t.Helper()
	for text, want := range queries {
		stored, gone, _ := strings.Cut(want, " ")
		for size, order := range map[int]string{1: "oldest", 2: "newest", 500: "newest"} {
			query, err := url.ParseQuery(text)
			if err != nil {
				t.Fatal(err)
			}
			ordered := stored + gone
			if query.Set("order", order); order == "newest" && stored == "ab" {
				ordered = "ba" + gone
			}
			if got := n.list(t, query, size); got != ordered {
				t.Errorf("AD-010 %s, %s in pages of %d: got %s, want %s", text, order, size, got,
					ordered)
			}
		}
	}
	if got := n.counts(t, "phase", url.Values{}); got["dead"] != int64(dead) || got["done"] != 0 {
		t.Errorf("AD-018 counted %v, want %d dead", got, dead)
	}
}
