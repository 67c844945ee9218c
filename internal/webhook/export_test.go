package webhook

import "time"

var (
	Backoff    = backoff
	RetryAfter = retryAfter
	Readable   = readable
	Signatures = signatures
	Machine    = machine
)

const KeptAnswer = keptAnswer

// Places lets tests look at how slots are given.
type Places struct{ ds *destinations }

func NewPlaces(slots int, elapsed func() time.Duration) Places {
	return Places{newDestinations(slots, elapsed, func() float64 { return 0.5 })}
}

// Enter returns how to leave, or nil and the wait.
func (p Places) Enter(key, host string) (leave func(ok bool, took time.Duration), wait time.Duration) {
	s, wait, _ := p.ds.enter(receiver{"client", host, key})
	if s == nil {
		return nil, wait
	}
	return func(ok bool, took time.Duration) { p.ds.leave(s, ok, took) }, 0
}

func (p Places) Known() int { return len(p.ds.by) }

func (p Places) Forget() { p.ds.forget(p.ds.elapsed()) }
