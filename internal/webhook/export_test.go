package webhook

import "time"

var (
	TruncateUTF8 = truncateUTF8
	Signatures   = signatures
	Machine      = machine
)

const (
	MaxResponseBytes = maxResponseBytes
	MaxReplays       = maxReplays
)

// Destinations lets tests look at how slots are given.
type Destinations struct{ destinations *destinations }

func NewDestinations(slots int, elapsed func() time.Duration) Destinations {
	return Destinations{newDestinations(slots, elapsed, func() float64 { return 0.5 })}
}

// Acquire returns how to leave, or nil and the wait.
func (p Destinations) Acquire(key, host string) (release func(ok bool, took time.Duration),
	wait time.Duration) {
	s, wait, _ := p.destinations.acquire(receiver{"client", host, key})
	if s == nil {
		return nil, wait
	}
	return func(ok bool, took time.Duration) { p.destinations.release(s, ok, took) }, 0
}

func (p Destinations) Len() int { return len(p.destinations.byKey) }

func (p Destinations) Evict() { p.destinations.evict(p.destinations.elapsed()) }
