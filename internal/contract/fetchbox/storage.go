package fetchbox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/telemetry"
)

// lookAgain is between two looks at a storage that is away.
const lookAgain = time.Second

// storage is what this node knows of the objects' place. While it is away nothing that is downloaded can be kept: a try
// that has met it is put back without being counted, and the next ones wait before they ask an origin for anything.
type storage struct{ away atomic.Bool }

// storageAnswers asks the storage.
func (f *FetchBox) storageAnswers(ctx context.Context) bool {
	within, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err := f.Objects.Ping(within)
	switch {
	case ctx.Err() != nil: // it has not been asked to the end
	case err != nil && !f.storage.away.Swap(true):
		f.Log.Warn("the storage is away; downloads wait for it", telemetry.ErrorMessage, err)
	case err == nil && f.storage.away.Swap(false):
		f.Log.Info("the storage is back")
	}
	return err == nil
}

// awaitStorage returns when the storage is there, at once where nobody has found it away, or when ctx ends.
func (f *FetchBox) awaitStorage(ctx context.Context) {
	for f.storage.away.Load() && !f.storageAnswers(ctx) {
		if !pause(ctx, lookAgain) {
			return
		}
	}
}
