package forgerun

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// A store is bound to the pepper of the first node that starts on it; every other node must have
// the same one. runPepper binds it when the node starts. The store may not have answered then, so
// each request checks that it is bound before anything else.

// pepperRetryInterval is the pause between two tries to bind the pepper.
const pepperRetryInterval = 5 * time.Second

// runPepper binds the pepper as soon as the store answers. If the store is bound to another pepper
// it logs what the operator must do. It returns when the pepper is bound, refused, or ctx has
// ended. A refused node keeps running and serves its other contracts.
func (f *ForgeRun) runPepper(ctx context.Context) {
	loop := outage.Loop{Log: f.Log, Name: "binding of the pepper"}
	var refusal error
	bound := loop.Until(ctx, pepperRetryInterval, func(ctx context.Context) error {
		err := f.bindPepper(ctx)
		if errors.Is(err, account.ErrPepper) {
			refusal = err
			return nil
		}
		return err
	})
	switch {
	case refusal != nil:
		f.Log.Error("this node answers every request of ForgeRun with 503: start it again "+
			"with the pepper file of the node that was started first on this store "+
			"(secrets.pepper_file, else pepper in its data_dir)",
			telemetry.ErrorCode, codeConfig, telemetry.ErrorMessage, refusal)
	case bound:
		f.Log.Debug("the pepper is the store's")
	}
}

// bindPepper binds the store to the pepper, or checks that it is bound to this one (FR-027). After
// its first success it does not ask the store any more.
func (f *ForgeRun) bindPepper(ctx context.Context) error {
	if f.pepperBound.Load() {
		return nil
	}
	if err := f.accounts.Bind(ctx); err != nil {
		return pepperError(err)
	}
	f.pepperBound.Store(true)
	return nil
}

// checkPepper checks that the store is not bound to another pepper. It changes nothing.
func (f *ForgeRun) checkPepper(ctx context.Context) error {
	if f.pepperBound.Load() {
		return nil
	}
	return pepperError(f.accounts.Check(ctx))
}

// checkPepperHealth fails if the store is bound to another pepper. A store that does not answer is
// reported by the store's own check.
func (f *ForgeRun) checkPepperHealth(ctx context.Context) error {
	err := f.checkPepper(ctx)
	if errors.Is(err, account.ErrPepper) {
		return unhealthy(codeConfig, account.ErrPepper.Error(), err)
	}
	return nil
}

// ensurePepper checks the pepper for a request. A request that may make a key binds it; others must
// not decide which pepper the other nodes need.
func (f *ForgeRun) ensurePepper(c *httpapi.Call) error {
	if c.Request.Method == http.MethodPost {
		return f.bindPepper(c.Context())
	}
	return f.checkPepper(c.Context())
}

// pepperError returns the answer to a request on a node with the wrong pepper (G-FR-30), and any
// other error as it is.
func pepperError(err error) error {
	if errors.Is(err, account.ErrPepper) {
		return &httpapi.CodedError{Code: codeConfig, Detail: "the pepper is wrong", Err: err}
	}
	return err
}
