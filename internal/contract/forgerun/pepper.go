package forgerun

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// pepperRetryInterval is between tries to bind the pepper.
const pepperRetryInterval = 5 * time.Second

// runPepper makes the pepper of the node that starts first the store's, once the
// store takes it, and says where the store has another: whoever starts a node
// should not have to ask it for its health.
func (f *ForgeRun) runPepper(ctx context.Context) {
	bindLoop := outage.Loop{Log: f.Log, Name: "binding of the pepper"}
	for {
		err := f.bindPepper(ctx)
		if err == nil {
			bindLoop.Report(ctx, nil)
			f.Log.Debug("the pepper is the store's")
			return
		}
		if errors.Is(err, account.ErrPepper) {
			f.Log.Error("this node answers every request of ForgeRun with 503: start it again "+
				"with the pepper file of the node that was "+
				"started first on this store (secrets.pepper_file, else pepper in its data_dir)",
				telemetry.ErrorCode, string(codeConfig), telemetry.ErrorMessage, err)
			return
		}
		bindLoop.Report(ctx, err)
		passed, stop := realTimer(pepperRetryInterval)
		select {
		case <-passed:
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// bindPepper finds out once whether the pepper is the one that the keys in the store
// were made under, which it becomes if there is none. With another one nobody could be
// recognised (FR-027).
func (f *ForgeRun) bindPepper(ctx context.Context) error {
	if f.pepperBound.Load() {
		return nil
	}
	err := f.accounts.Bind(ctx)
	if err == nil {
		f.pepperBound.Store(true)
	}
	return pepperError(err)
}

// checkPepper is bindPepper for who only asks: it changes nothing.
func (f *ForgeRun) checkPepper(ctx context.Context) error {
	if f.pepperBound.Load() {
		return nil
	}
	return pepperError(f.accounts.Check(ctx))
}

// checkPepperHealth fails where the pepper is known to be a wrong one. A store that does not
// answer is not its fault.
func (f *ForgeRun) checkPepperHealth(ctx context.Context) error {
	err := f.checkPepper(ctx)
	if errors.Is(err, account.ErrPepper) {
		return unhealthy(codeConfig, account.ErrPepper.Error(), err)
	}
	return nil
}

// ensurePepper is what a request needs. One that may make a key does not wait for Run to
// have bound the pepper; others decide nothing for other nodes.
func (f *ForgeRun) ensurePepper(v *request) error {
	if v.call.Request.Method == http.MethodPost {
		return f.bindPepper(v.ctx)
	}
	return f.checkPepper(v.ctx)
}

func pepperError(err error) error {
	if errors.Is(err, account.ErrPepper) {
		return &problem{code: codeConfig, detail: "the pepper is wrong", cause: err}
	}
	return err
}
