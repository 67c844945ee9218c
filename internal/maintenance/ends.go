package maintenance

import "context"

// carryOutEnds carries out the ends of runs that workers have recorded, whenever the store
// announces some or the sweep has seen some.
func (r *Runner) carryOutEnds(ctx context.Context) {
	r.rounds(ctx, "recorded ends", r.Engine.EndsRecorded(), r.Engine.CarryOutEnds)
}

// verifyEnds carries out those of the ends whose results have to be verified first.
func (r *Runner) verifyEnds(ctx context.Context) {
	r.rounds(ctx, "recorded ends to verify", r.Engine.EndsToVerify(), r.Engine.VerifyEnds)
}

// rounds repeats a step whenever there is a signal, until ctx ends.
func (r *Runner) rounds(ctx context.Context, task string, ready <-chan struct{},
	step func(context.Context) (int, error)) {
	for {
		awaitSignal(ctx, ready)
		if ctx.Err() != nil {
			return
		}
		_, err := step(ctx)
		pause := r.Engine.EndsPause()
		if !r.report(ctx, task, err) {
			pause = stuckPause
		}
		if !sleep(ctx, pause, nil) {
			return
		}
	}
}
