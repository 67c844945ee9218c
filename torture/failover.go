package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The modes in which a primary is lost.
const (
	modeKilled   = "killed"   // all processes at once
	modeCut      = "cut"      // the standby gets nothing for the length, then killed
	modeFrozen   = "frozen"   // it is silent, and killed when the nodes have gone on without it
	modeSwitched = "switched" // stopped in order
)

var modes = []string{modeKilled, modeCut, modeFrozen, modeSwitched}

// isFailover reports whether a kind of fault needs servers of its own.
func isFailover(kind string) bool {
	return kind == faultFailover || kind == faultFailoverAsync || isPatroni(kind)
}

// losesAcknowledged reports whether a kind of fault may lose what was acknowledged, as the standby
// that is promoted need not have it.
func losesAcknowledged(kind string) bool {
	return kind == faultFailoverAsync || kind == faultPatroniAsync
}

// drawMode draws the mode of a fault. Of two servers a loss of the network between them loses most,
// so it is as frequent as the others together.
func drawMode(kind string, r *rand.Rand) string {
	if isFailover(kind) && !isPatroni(kind) && r.IntN(2) == 0 {
		return modeCut
	}
	all := modesOf(kind)
	return all[r.IntN(len(all))]
}

// failedOver is one failover. Times are those of the ledger.
type failedOver struct {
	Mode     string `json:"mode"`
	Lost     int64  `json:"lost"`     // when the primary stopped to answer
	Promoted int64  `json:"promoted"` // when the other one was the primary
	// Outage is from Lost until each node had acknowledged a write. With Patroni, where the primary
	// may go on for a while, it is the longest time in which none was acknowledged.
	Outage time.Duration `json:"outage"`
	Wait   time.Duration `json:"wait"` // the part of it after Promoted
}

// failOver loses the primary, promotes the standby, waits until the nodes go on, and makes the lost
// server the standby of the other one.
func (r *run) failOver(ctx context.Context, f fault) error {
	heal := context.WithoutCancel(ctx)
	o := failedOver{Mode: f.Mode}
	lost := r.cluster.leader()
	if err := r.losePrimary(ctx, f, &o); err != nil {
		return err
	}
	if err := r.cluster.promote(heal); err != nil {
		return err
	}
	o.Promoted = r.ledger.now()
	if err := r.database.follow(r.cluster.leader().url()); err != nil {
		return err
	}
	if at, ok := r.awaitWrites(ctx, o.Lost); ok {
		o.Outage = time.Duration(at-o.Lost) * time.Microsecond
		o.Wait = max(0, time.Duration(at-o.Promoted)*time.Microsecond)
	}
	if err := lost.kill(); err != nil {
		return err
	}
	if err := r.awaitNodes(heal); err != nil {
		return err
	}
	r.failovers = append(r.failovers, o)
	if err := r.cluster.rebuild(heal); err != nil {
		return err
	}
	r.logFailover(&o)
	return nil
}

// logFailover logs a failover when all servers are there again.
func (r *run) logFailover(o *failedOver) {
	r.log("        promoted after %s, writes after %s more, a standby again after %s",
		time.Duration(o.Promoted-o.Lost)*time.Microsecond, o.Wait,
		time.Duration(r.ledger.now()-o.Lost)*time.Microsecond)
}

// losePrimary loses the primary in the mode that a fault names.
func (r *run) losePrimary(ctx context.Context, f fault, o *failedOver) error {
	s := r.cluster.leader()
	if f.Mode == modeCut {
		if err := r.cluster.holdStream(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	o.Lost = r.ledger.now()
	switch f.Mode {
	case modeCut:
		sleep(ctx, f.Length)
		if !r.cluster.synchronous { // it has gone on, as it waits for no standby
			o.Lost = r.ledger.now()
		}
		return s.kill()
	case modeSwitched:
		return s.stop()
	case modeFrozen:
		err := s.freeze()
		sleep(ctx, f.Length) // until somebody sees it
		return err
	case modeKilled:
		err := s.kill()
		sleep(ctx, f.Length)
		return err
	}
	return fmt.Errorf("there is no mode %q to lose a primary", f.Mode)
}

// writesTimeout is how long nodes may take until they acknowledge writes again.
const writesTimeout = 60 * time.Second

// awaitWrites waits until each node has acknowledged a write that was sent after a time, and
// returns when the last of them has. ok is false where the load ends before.
func (r *run) awaitWrites(ctx context.Context, since int64) (last int64, ok bool) {
	for start := time.Now(); time.Since(start) < writesTimeout; {
		if last, ok = r.ledger.firstWrites(len(r.nodes), since); ok {
			return last, true
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return 0, false
		}
	}
	return 0, false
}

// firstWrites returns the latest of the times at which each node has first acknowledged a write
// that was sent after a time. ok is false where one of them has not yet.
func (l *ledger) firstWrites(nodes int, since int64) (last int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := map[int]int64{}
	for _, o := range slices.Backward(l.ops) {
		if o.Invoked < since {
			break
		}
		if o.Returned == 0 || o.Class != classOK || !o.writes() {
			continue
		}
		if first[o.Node] == 0 || o.Returned < first[o.Node] {
			first[o.Node] = o.Returned
		}
	}
	for _, at := range first {
		last = max(last, at)
	}
	return last, len(first) == nodes
}

// writes reports whether a request that was carried out has certainly changed the database. A
// creation may have been answered from its idempotency key.
func (o *op) writes() bool { return len(o.Claimed) > 0 || o.Verb == "heartbeat" }

// lostKinds are the invariants that the loss of the last acknowledged requests violates, whatever
// the server does. The others hold without them.
var lostKinds = []string{"I1", "I3", "I4", "I5", "I6", "I8", "I9", "I11", "I13", "I14", "I15",
	"I16", "I17", "I18"}

// splitLost separates what the failovers to an asynchronous standby explain from violations.
func splitLost(all map[string]int) (lost, violated map[string]int) {
	lost, violated = map[string]int{}, map[string]int{}
	for kind, n := range all {
		number, _, _ := strings.Cut(kind, " ")
		if slices.Contains(lostKinds, number) {
			lost[kind] = n
		} else {
			violated[kind] = n
		}
	}
	return lost, violated
}

// writeFailovers writes what came of the failovers, if there were any.
func (v *verdict) writeFailovers(w io.Writer) {
	if len(v.Failovers) == 0 {
		return
	}
	var outages, waits []time.Duration
	for _, o := range v.Failovers {
		if o.Outage > 0 {
			outages, waits = append(outages, o.Outage), append(waits, o.Wait)
		}
	}
	counts := map[string]int{}
	for _, o := range v.Failovers {
		counts[o.Mode]++
	}
	fmt.Fprintf(w, "%d failovers: %s\n", len(v.Failovers), countsByName(counts))
	if v.Faults[faultPatroni]+v.Faults[faultPatroniAsync] > 0 && len(outages) > 0 {
		fmt.Fprintf(w, "no write was acknowledged for %s (median), %s (slowest); each node did %s, "+
			"%s after the promotion\n", median(outages), slices.Max(outages), median(waits),
			slices.Max(waits))
	} else if len(outages) > 0 {
		fmt.Fprintf(w, "all nodes acknowledged writes again after %s (median), %s (slowest), of "+
			"which after the promotion %s, %s\n", median(outages), slices.Max(outages),
			median(waits), slices.Max(waits))
	}
	if v.Lost != nil {
		fmt.Fprintf(w, "lost with the primaries, as the standby was asynchronous: %v\n", v.Lost)
	}
}

// countsByName writes counts with their names.
func countsByName(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}

// median returns the median.
func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
