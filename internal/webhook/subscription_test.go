package webhook_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

const unknownID = "019cabcd-0000-7000-8000-000000000000"

func TestRegister(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, secret := n.register("https://a.example/x", "job_failed", "job_created", "job_failed")
		if h.Owner != owner || h.URL != "https://a.example/x" ||
			!slices.Equal(h.Events, []string{"job_failed", "job_created"}) || h.Disabled ||
			!h.CreatedAt.Equal(n.clock.Now()) || !strings.HasPrefix(secret, "whsec_") ||
			len(secret) != 50 {
			t.Errorf("FR-185 registered %+v, %s", h, secret)
		}
		if got, err := n.Subscription(n.ctx, owner, strings.ToUpper(h.ID)); err != nil ||
			!equalSubscriptions(got, h) {
			t.Errorf("reads %+v, %v", got, err)
		}
		if _, _, err := n.Register(n.ctx, owner, h.URL, []string{"job_created", "job_failed"},
			""); !job.IsKind(err, job.Conflict) {
			t.Errorf("FR-187 the same url and event set: %v", err)
		}
		if _, _, err := n.Register(n.ctx, owner, h.URL, []string{"job_created"}, ""); err != nil {
			t.Errorf("another event set: %v", err)
		}
		if _, _, err := n.Register(n.ctx, otherOwner, h.URL, h.Events, ""); err != nil {
			t.Errorf("another client: %v", err)
		}
		for _, url := range []string{"", "ftp://a", "a.example", "http://", "http://u:p@a/",
			"http://a:0", "http://a b"} {
			_, _, err := n.Register(n.ctx, owner, url, []string{"job_created"}, "k")
			n.wantKind(err, job.Invalid)
		}
		for _, events := range [][]string{nil, {}, {""}, {"a", ""}, {strings.Repeat("x", 101)}} {
			_, _, err := n.Register(n.ctx, owner, "http://b", events, "k")
			n.wantKind(err, job.Invalid)
		}
		if _, _, err := n.Register(n.ctx, owner, "http://b", []string{"job_created"},
			"k"); err != nil {
			t.Errorf("FR-072 a refused request has used up its key: %v", err)
		}
	})
}

func equalSubscriptions(a, b webhook.Subscription) bool {
	return a.ID == b.ID && a.Owner == b.Owner && a.URL == b.URL &&
		slices.Equal(a.Events, b.Events) && a.Disabled == b.Disabled &&
		a.DisabledReason == b.DisabledReason && a.CreatedAt.Equal(b.CreatedAt)
}

func TestRegisterAgain(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		register := func(who, url, key string, events ...string) (webhook.Subscription, string,
			error) {
			return n.Register(n.ctx, who, url, events, key)
		}
		h, _, err := register(owner, "http://a", "key", "x", "y")
		if err != nil {
			t.Fatal(err)
		}
		n.clock.Advance(time.Hour)
		if again, secret, err := register(owner, "http://a", "key", "y", "x"); err != nil ||
			!equalSubscriptions(again, h) || secret != "" {
			t.Errorf("G-FR-58 the same key: %+v, %q, %v", again, secret, err)
		}
		if _, _, err := register(owner, "http://a", "key", "x"); !errors.Is(err,
			engine.ErrKeyReused) {
			t.Errorf("FR-018 another request: %v", err)
		}
		if mine, secret, err := register(otherOwner, "http://a", "key", "x", "y"); err != nil ||
			mine.ID == h.ID || secret == "" {
			t.Errorf("FR-069 another client: %+v, %v", mine, err)
		}
		if err := n.Delete(n.ctx, owner, h.ID); err != nil {
			t.Fatal(err)
		}
		fresh, secret, err := register(owner, "http://a", "key", "x", "y")
		if err != nil || fresh.ID == h.ID || secret == "" {
			t.Errorf("after the first was deleted: %+v, %v", fresh, err)
		}
		n.clock.Advance(25 * time.Hour)
		_, _, err = register(owner, "http://a", "key", "x", "y")
		n.wantKind(err, job.Conflict)
	})
}

// Whatever is asked at the same time, there is one.
func TestRegisterCrowd(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		w := newWorld(t, database, false)
		nodes := []*node{w.node(), w.node()}
		for _, key := range []string{"", "key"} {
			var all sync.WaitGroup
			var mu sync.Mutex
			made, ids := 0, map[string]bool{}
			for i := range 20 {
				all.Go(func() {
					h, secret, err := nodes[i%2].Register(w.ctx, owner, "http://a/"+key,
						[]string{"x"}, key)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						ids[h.ID] = true
					} else if key != "" || !job.IsKind(err, job.Conflict) {
						t.Error(err)
					}
					if secret != "" {
						made++
					}
				})
			}
			all.Wait()
			if made != 1 || len(ids) != 1 {
				t.Errorf("key %q: %d were made, with ids %v", key, made, ids)
			}
		}
	})
}

func TestSubscriptionsOfOthers(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, _ := n.register("http://a", "x")
		verbs := map[string]func(who, id string) error{
			"read": func(who, id string) error {
				_, err := n.Subscription(n.ctx, who, id)
				return err
			},
			"enable": func(who, id string) error {
				_, err := n.Enable(n.ctx, who, id)
				return err
			},
			"rotate": func(who, id string) error {
				_, err := n.Rotate(n.ctx, who, id)
				return err
			},
			"deliveries": func(who, id string) error {
				_, _, err := n.Deliveries(n.ctx, who, id, "", 0, 10)
				return err
			},
			"replay": func(who, id string) error {
				_, err := n.Replay(n.ctx, who, id, unknownID, nil)
				return err
			},
			"delete": func(who, id string) error { return n.Delete(n.ctx, who, id) },
		}
		for name, verb := range verbs {
			if err := verb(otherOwner, h.ID); !errors.Is(err, webhook.ErrForbidden) {
				t.Errorf("FR-034 %s of another client's: %v", name, err)
			}
			for _, id := range []string{unknownID, "x", "", "\x00", "../" + h.ID,
				strings.Repeat("9", 9999)} {
				if err := verb(owner, id); !job.IsKind(err, job.NotFound) &&
					!(name == "deliveries" && id == "") {
					t.Errorf("%s of %q: %v", name, id, err)
				}
			}
		}
		if err := n.Delete(n.ctx, owner, h.ID); err != nil {
			t.Error(err)
		}
		n.wantKind(n.Delete(n.ctx, owner, h.ID), job.NotFound) // FR-188 again
	})
}

func TestHooksAreListed(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		var want []string
		for _, url := range []string{"http://c", "http://a", "http://b"} {
			n.clock.Advance(time.Second)
			h, _ := n.register(url, "x")
			want = append(want, h.ID)
		}
		if _, _, err := n.Register(n.ctx, otherOwner, "http://z", []string{"x"}, ""); err != nil {
			t.Fatal(err)
		}
		var got []string
		for after := ""; ; {
			page, err := n.Subscriptions(n.ctx, owner, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range page {
				got = append(got, h.ID)
				after = h.ID
			}
			if len(page) < 2 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
		_, err := n.Subscriptions(n.ctx, owner, "\x00", 2)
		n.wantKind(err, job.Invalid)
	})
}

// Secrets are sealed where they are kept, and in no log.
func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	h, first := n.register("http://a", "x")
	second, err := n.Rotate(n.ctx, owner, h.ID)
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	if err := n.engine.ViewRecords(n.ctx, func(r engine.RecordReader) error {
		rec, err := r.Record("webhook", h.ID)
		if err != nil {
			return err
		}
		for _, plain := range []string{first, second, first[6:], second[6:]} {
			if strings.Contains(string(rec.Body), plain) {
				t.Error("a secret is kept in plain text")
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
