package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"
)

// Bench runs cases in interleaved rounds.
type Bench struct {
	Env     *Env
	Jobs    int           // jobs per run, before a case's Divide
	Warmup  int           // jobs per run of the warm-up round
	Rounds  int           // measured rounds
	Timeout time.Duration // longest time for one setup or one run
	Log     io.Writer     // progress, one line per run
}

// Track is what became of one case.
type Track struct {
	Case       Case
	Durability string
	SkipReason string    // why the case did not run
	Failed     string    // what ended it early
	Rounds     [][]Phase // index is the round; nil where the case did not finish it

	runner Runner
}

// active reports whether the case takes part in the next round.
func (t *Track) active() bool { return t.runner != nil && t.Failed == "" }

// Phases names the phases the case answered, in the order of its runs.
func (t *Track) Phases() []string {
	var names []string
	for _, round := range t.Rounds {
		for _, p := range round {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// Each returns the named phase of every round, nil where there is none.
func (t *Track) Each(phase string) []*Phase {
	found := make([]*Phase, len(t.Rounds))
	for i, round := range t.Rounds {
		for k := range round {
			if round[k].Name == phase {
				found[i] = &round[k]
			}
		}
	}
	return found
}

// Rates returns the rate of the named phase per round, NaN where there is none.
func (t *Track) Rates(phase string) []float64 {
	var rates []float64
	for _, p := range t.Each(phase) {
		rate := math.NaN()
		if p != nil {
			rate = p.Rate()
		}
		rates = append(rates, rate)
	}
	return rates
}

// Run sets every case up, runs the rounds and closes what it set up. It always answers one track
// per case; the error says that the bench was cut short.
func (b *Bench) Run(ctx context.Context, chosen []Case) ([]*Track, error) {
	tracks := make([]*Track, len(chosen))
	for i, c := range chosen {
		tracks[i] = &Track{Case: c}
	}
	defer b.close(tracks)
	for _, t := range tracks {
		b.setup(ctx, t)
	}
	b.round(ctx, "warm-up", tracks, b.Warmup, func(*Track, []Phase) {})
	for i := range b.Rounds {
		if ctx.Err() != nil {
			break
		}
		for _, t := range tracks {
			t.Rounds = append(t.Rounds, nil)
		}
		b.round(ctx, fmt.Sprintf("round %d/%d", i+1, b.Rounds), tracks, b.Jobs,
			func(t *Track, phases []Phase) { t.Rounds[i] = phases })
	}
	if cause := context.Cause(ctx); cause != nil {
		return tracks, fmt.Errorf("cut short: %w", cause)
	}
	return tracks, nil
}

func (b *Bench) setup(ctx context.Context, t *Track) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	runner, err := t.Case.Setup(ctx, b.Env)
	switch {
	case isSkip(err):
		t.SkipReason = err.Error()
		fmt.Fprintf(b.Log, "setup %s: skipped: %s\n", t.Case.Name, t.SkipReason)
	case err != nil:
		t.Failed = singleLine("setup: " + err.Error())
		fmt.Fprintf(b.Log, "setup %s: FAILED: %v\n", t.Case.Name, err)
	default:
		t.runner = runner
		t.Durability = runner.Durability()
	}
}

// round runs every live case once. A case that fails is out of later rounds.
func (b *Bench) round(ctx context.Context, name string, tracks []*Track, jobs int,
	record func(*Track, []Phase)) {
	for _, t := range tracks {
		if !t.active() || ctx.Err() != nil {
			continue
		}
		// No case pays for the garbage of the one before it.
		runtime.GC()
		n := max(jobs/max(t.Case.Divide, 1), 1)
		phases, err := b.runOnce(ctx, t, n)
		switch {
		case err != nil && ctx.Err() != nil:
			// The whole bench is ending; that says nothing about this case.
		case err != nil:
			t.Failed = singleLine(fmt.Sprintf("%s: %v", name, err))
			fmt.Fprintf(b.Log, "%s %s: FAILED: %v\n", name, t.Case.Name, err)
		default:
			record(t, phases)
			t.Durability = t.runner.Durability() // some know it, and more, only after a run
			fmt.Fprintf(b.Log, "%s %s:%s\n", name, t.Case.Name, oneLine(phases))
		}
	}
}

func (b *Bench) runOnce(ctx context.Context, t *Track, n int) ([]Phase, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.Timeout,
		fmt.Errorf("no end within %s (see --timeout)", b.Timeout))
	defer cancel()
	phases, err := t.runner.Run(ctx, n)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(err, context.Cause(ctx))
	}
	return phases, err
}

func (b *Bench) close(tracks []*Track) {
	for _, t := range slices.Backward(tracks) {
		if t.runner == nil {
			continue
		}
		if err := t.runner.Close(); err != nil {
			fmt.Fprintf(b.Log, "close %s: %v\n", t.Case.Name, err)
		}
	}
}

func oneLine(phases []Phase) string {
	line := ""
	for _, p := range phases {
		line += fmt.Sprintf("  %s %.0f/s", p.Name, p.Rate())
	}
	return line
}
