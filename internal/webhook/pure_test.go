package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// The example of the specification's reference implementations.
func TestSignatureOfTheSpecification(t *testing.T) {
	t.Parallel()
	got, err := webhook.Signatures([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAA"},
		"msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	first, second, _ := strings.Cut(got, " ")
	if err != nil || first != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" ||
		!strings.HasPrefix(second, "v1,") {
		t.Errorf("G-FR-48 signature: got %q, %v", got, err)
	}
}

func TestReadable(t *testing.T) {
	t.Parallel()
	full := webhook.MaxResponseBytes
	for name, c := range map[string]struct{ in, want string }{
		"text":           {"ok", "ok"},
		"nothing":        {"", ""},
		"bytes":          {"a\xff\xfeb", "a?b"},
		"a whole rune":   {strings.Repeat("x", full-3) + "€", strings.Repeat("x", full-3) + "€"},
		"a cut rune":     {strings.Repeat("x", full-2) + "€"[:2], strings.Repeat("x", full-2)},
		"one byte of it": {strings.Repeat("x", full-1) + "€"[:1], strings.Repeat("x", full-1)},
		"three of four":  {strings.Repeat("x", full-3) + "😀"[:3], strings.Repeat("x", full-3)},
		"all garbage":    {strings.Repeat("\x80", full), "?"},
	} {
		if got := webhook.TruncateUTF8([]byte(c.in)); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %d bytes ending in %q", name, len(got), got[max(0, len(got)-4):])
		}
	}
}

// Every state and cause: what is not listed does not happen.
func TestMachine(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		" submitted": "waiting", "waiting satisfied": "pending", "waiting unsatisfiable": "pending",
		"pending claimed":   "sending",
		"sending succeeded": "delivered", "sending failed": "pending",
		"sending failed_for_good": "exhausted", "sending released": "pending",
		"sending expired": "pending",
	}
	seen := 0
	for _, from := range append(webhook.Machine.States(), job.StateNone) {
		for _, on := range job.Causes() {
			tr, ok := webhook.Machine.Next(from, on)
			key := fmt.Sprintf("%s %s", from, on)
			if key == "sending "+string(job.FailedForGood) {
				key = "sending failed_for_good"
			}
			if to := want[key]; ok != (to != "") || string(tr.To) != to ||
				tr.CountsFailed != (on == job.Failed && ok) {
				t.Errorf("%s leads to %q, want %q", key, tr.To, to)
			} else if ok {
				seen++
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d moves, want %d", seen, len(want))
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	p := webhook.NewDestinations(16, func() time.Duration { return now })
	acquireAll := func(key, host string) (releases []func(bool, time.Duration)) {
		for {
			release, wait := p.Acquire(key, host)
			if release == nil {
				if wait <= 0 || wait > time.Minute {
					t.Fatalf("a wait of %v", wait)
				}
				return releases
			}
			releases = append(releases, release)
		}
	}
	count := func(key, host string, want int) []func(bool, time.Duration) {
		t.Helper()
		all := acquireAll(key, host)
		if len(all) != want {
			t.Errorf("%s gets %d slots, want %d", key, len(all), want)
		}
		return all
	}
	all := func(releases []func(bool, time.Duration), ok bool, took time.Duration) {
		for _, release := range releases {
			release(ok, took)
		}
	}
	a := count("a", "a", 4) // new: four
	all(a, true, time.Millisecond)
	a = count("a", "a", 8) // each good answer one more
	all(a, true, time.Millisecond)
	a = count("a", "a", 12) // three quarters of all at most
	b := count("b", "b", 4)
	all(b, false, 5*time.Second)
	b = count("b", "b", 1) // dead: one
	count("c", "x", 4)
	count("d", "x", 0)          // a quarter on one host of those not proven
	count("e", "y", 3)          // and half of all of them
	f := count("f", "z", 1)     // nothing is known of it
	all(a, true, 2*time.Second) // slow, but good
	count("a", "a", 0)          // no longer proven, and the half of those is full
	all(f, false, time.Millisecond)
	count("f", "z", 0) // known to fail
	all(b, true, time.Millisecond)
	count("b", "b", 2) // proven again
}

// Waits are booked one after another, and never longer than a minute.
func TestBookings(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	p := webhook.NewDestinations(4, func() time.Duration { return now })
	release, _ := p.Acquire("dead", "h")
	release(false, 5*time.Second)
	release, _ = p.Acquire("dead", "h")
	if release == nil {
		t.Fatal("no slot")
	}
	last := time.Duration(0)
	for i := range 1000 {
		_, wait := p.Acquire("dead", "h")
		if (i < 12 && wait != last+5*time.Second) || wait > time.Minute || wait < 5*time.Second {
			t.Fatalf("wait %d is %v after %v", i, wait, last)
		}
		last = wait
	}
	release(true, time.Millisecond)
	if release, _ = p.Acquire("dead", "h"); release == nil {
		t.Error("no slot after a good answer")
	}
	if _, wait := p.Acquire("other", "h"); wait != 0 {
		t.Errorf("nothing is before it and it waits %v", wait)
	}
	now += 10 * time.Second
	if _, wait := p.Acquire("third", "h"); wait < 10*time.Second {
		t.Errorf("the host has not answered for 10s, and the wait is %v", wait)
	}
	for i := range 30_000 {
		p.Acquire(fmt.Sprint(i), fmt.Sprint(i))
	}
	if p.Len() > 10_001 {
		t.Errorf("%d receivers are remembered", p.Len())
	}
	now += time.Hour
	p.Evict()
	if p.Len() > 4 { // those that are being called
		t.Errorf("%d receivers are remembered after an hour", p.Len())
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := newWorld(t, "memory", false).node().Config
	if _, err := webhook.New(good); err != nil {
		t.Fatal(err)
	}
	for name, invalidate := range map[string]func(*webhook.Config){
		"no engine": func(c *webhook.Config) { c.Engine = nil },
		"no vault": func(c *webhook.Config) {
			c.Vault = nil
		}, "no client": func(c *webhook.Config) { c.Client = nil },
		"no callback secret": func(c *webhook.Config) {
			c.CallbackSecret = nil
		}, "no chance": func(c *webhook.Config) { c.Random = nil },
		"no clock": func(c *webhook.Config) {
			c.Elapsed = nil
		}, "no timeout": func(c *webhook.Config) { c.Timeout = 0 },
		"no attempts": func(c *webhook.Config) {
			c.MaxAttempts = 0
		}, "negative slots": func(c *webhook.Config) { c.Slots = -1 },
		"no base": func(c *webhook.Config) {
			c.BackoffBase = 0
		}, "most below least": func(c *webhook.Config) { c.BackoffMax = time.Millisecond },
		"a shrinking backoff": func(c *webhook.Config) { c.BackoffFactor = 0.5 },
	} {
		c := good
		invalidate(&c)
		if _, err := webhook.New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
