package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// clockChanges is a time zone whose clocks are put ahead at a moment and put back a little later.
type clockChanges struct{ ahead, back time.Time }

const (
	clockShift = 4 * time.Second // by which they are put ahead
	clockStays = 6 * time.Second // until they are put back
	// clockLead is what is left for making the schedules.
	clockLead = 8 * time.Second
)

// newClockChanges returns changes that come soon.
func newClockChanges(now time.Time) clockChanges {
	ahead := now.Add(clockLead).Truncate(time.Second)
	return clockChanges{ahead, ahead.Add(clockStays)}
}

// file is the zone as tzfile(5) describes it, in version 1.
func (c clockChanges) file() []byte {
	type header struct {
		Magic                                       [4]byte
		Version                                     byte
		Reserved                                    [15]byte
		UTCs, Standards, Leaps, Times, Types, Chars uint32
	}
	type zoneType struct {
		Offset   int32
		IsSummer bool
		Name     uint8
	}
	var b bytes.Buffer
	for _, part := range []any{
		header{Magic: [4]byte([]byte("TZif")), Times: 2, Types: 2, Chars: 4},
		[]int32{int32(c.ahead.Unix()), int32(c.back.Unix())}, []uint8{1, 0},
		zoneType{}, zoneType{Offset: int32(clockShift / time.Second), IsSummer: true},
		[]byte("ZON\x00"),
	} {
		if err := binary.Write(&b, binary.BigEndian, part); err != nil {
			panic(err) // all parts have a fixed size
		}
	}
	return b.Bytes()
}

// daily is a cron expression for one time of the day.
func daily(at time.Time) *string {
	h, m, s := at.UTC().Clock()
	text := fmt.Sprintf("%d %d %d * * *", s, m, h)
	return &text
}

// TestKilledSchedulesOverClockChanges (SC-003, SC-004): while three nodes are killed and started
// again, the clocks of a time zone are put ahead and back. A time that is left out has one job, at
// the change, one that comes twice has one job, at its first, and of the others each has its own.
// On SQLite it is one node.
func TestKilledSchedulesOverClockChanges(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"sqlite": 1, "postgres": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zones := t.TempDir()
			w := startNodes(t, nodes, append(os.Environ(), "ZONEINFO="+zones), "--set",
				"contracts=taskflow")
			c := newClockChanges(time.Now())
			mustWriteFile(t, zones, "Changing", c.file())
			w.checkClockChanges(c)
			w.stop()
		})
	}
}

func (w *killedNodes) checkClockChanges(c clockChanges) {
	zone, all := "Changing", "* * * * * *"
	single := map[string]struct{ shown, want time.Time }{}
	for i := range 3 { // what the clock shows while it is winter, of times that it does not show
		shown := c.ahead.Add(time.Duration(i+1) * time.Second)
		single[fmt.Sprint("left_out_", i)] = struct{ shown, want time.Time }{shown, c.ahead}
		shown = c.back.Add(time.Duration(i) * time.Second)
		single[fmt.Sprint("twice_", i)] = struct{ shown, want time.Time }{shown,
			shown.Add(-clockShift)}
	}
	for name, s := range single {
		w.createSchedule(name, client.AdminScheduleSpec{Cron: daily(s.shown), TimeZone: &zone})
	}
	created := w.createSchedule("all", client.AdminScheduleSpec{Cron: &all, TimeZone: &zone})
	if !created.Before(c.ahead) {
		w.Fatalf("the schedules were made at %v, after the change at %v", created, c.ahead)
	}
	latest := created
	for kill := 0; latest.Before(c.back.Add(clockShift)); kill++ {
		w.kill(kill)
		latest = w.awaitTick(latest)
	}
	w.checkTimes("all", latest, func(nth int) time.Time {
		at := created.Truncate(time.Second).Add(time.Duration(nth+1) * time.Second)
		if !at.Before(c.back) {
			at = at.Add(clockShift) // what the clock shows in between was there before
		}
		return at
	})
	for name, s := range single {
		// A node that was killed may have taken it; another one submits it after its lease.
		pollUntil(w.Fatalf, name+" to be submitted", func() bool { return len(w.ticks(name)) > 0 })
		if n := len(w.ticks(name)); n != 1 {
			w.Errorf("SC-003 %s has had %d times, want 1", name, n)
		}
		w.checkTicks(name, func(int) time.Time { return s.want })
	}
}

// awaitTick waits for a tick of the schedule of all seconds after a moment, and returns the time of
// the last one.
func (w *killedNodes) awaitTick(after time.Time) (at time.Time) {
	w.Helper()
	pollUntil(w.Fatalf, "a job to be submitted", func() bool {
		ticks := w.ticks("all")
		if len(ticks) > 0 {
			at = ticks[len(ticks)-1].Time
		}
		return at.After(after)
	})
	return at
}
