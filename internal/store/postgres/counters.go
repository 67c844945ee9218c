package postgres

import (
	"sync"
	"time"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

const (
	// slowCount is how long it takes to add to counters where many versions of one are passed
	// over, and slowInRow how often in a row it takes that before the slot is left. That is how
	// often in a row a claim must be slow, too.
	slowCount    = 1500 * time.Microsecond
	slowInRow    = 4
	maxSlotUses  = 256 // the transactions after which a queue gets yet another slot
	maxAbandoned = 10_000
)

// abandonedSlots has the queues whose counters have many versions, and which slot a transaction
// then uses instead of its own, see sqlstore.NewSlot. A slot that was left without a need costs the
// queue a counter for each maxSlotUses transactions, until the next fold.
type abandonedSlots struct {
	mu    sync.Mutex
	slots map[slotOfQueue]*abandonedSlot
}

type slotOfQueue struct{ queueHash, slot int64 }

type abandonedSlot struct {
	slow        int   // how often in a row counting was slow, while the slot is not left
	replacement int64 // the slot instead of it, 0 while it is not left
	uses        int
}

// slotFor returns the slot that a transaction uses for a queue.
func (l *abandonedSlots) slotFor(queueHash, slot int64, now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	abandoned := l.slots[slotOfQueue{queueHash, slot}]
	if abandoned == nil || abandoned.replacement == 0 {
		return slot
	}
	if abandoned.uses++; abandoned.uses > maxSlotUses {
		abandoned.replacement, abandoned.uses = sqlstore.NewSlot(slot, now), 1
	}
	return abandoned.replacement
}

// record is called after queues were counted in a slot.
func (l *abandonedSlots) record(queueHashes []int64, slot int64, now time.Time,
	took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, hash := range queueHashes {
		l.recordQueue(slotOfQueue{hash, slot}, now, took >= slowCount)
	}
}

func (l *abandonedSlots) recordQueue(key slotOfQueue, now time.Time, isSlow bool) {
	abandoned := l.slots[key]
	switch {
	case abandoned != nil && abandoned.replacement != 0:
	case !isSlow:
		delete(l.slots, key)
	case abandoned == nil:
		if l.slots == nil || len(l.slots) > maxAbandoned {
			l.slots = map[slotOfQueue]*abandonedSlot{}
		}
		l.slots[key] = &abandonedSlot{slow: 1}
	default:
		if abandoned.slow++; abandoned.slow >= slowInRow {
			abandoned.replacement = sqlstore.NewSlot(key.slot, now)
		}
	}
}
