package admin

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// What a request asks of a bulk operation: in JSON (readBulk), or by a form (ReadBulk). Three rules
// keep an operator from changing more than was meant:
//
//   - a filter that names nothing is refused, unless everything says that all is meant
//   - a member or field with an unknown name is refused: one that was misspelt would select all
//   - as_of binds an operation to the time of the preview that was confirmed: what has been created
//     since is none of it

// The bounds of an operation.
const (
	maxBulkRate   = 100_000
	maxBulkLimit  = 1_000_000_000
	maxBulkCanary = 1000
)

// AsOf is the member that binds an operation to the preview that it was confirmed by.
const AsOf = "as_of"

// bulkBody is the body of the request for an operation.
type bulkBody struct {
	bulk.Request
	dryRun bool
}

// readBulk reads {action, filter, rate, limit, canary, as_of, dry_run, everything}.
func (a *API) readBulk(c *httpapi.Call) (b bulkBody, err error) {
	body, err := readMembers(c, "action", "filter", "rate", "limit", "canary", "as_of", "dry_run",
		"everything")
	if err != nil {
		return b, err
	}
	var filter []byte
	everything := false
	for name, value := range strictjson.Members(body) {
		var err error
		switch key := string(name); key {
		case "action":
			if b.Action, err = strictjson.String(value); err != nil {
				err = invalid("action must be a text")
			}
		case "filter":
			filter = bytes.Clone(value)
		case "rate":
			b.Rate, err = readLimit(key, value, maxBulkRate)
		case "limit":
			b.Limit, err = readLimit(key, value, maxBulkLimit)
		case "canary":
			b.Canary, err = readLimit(key, value, maxBulkCanary)
		case "as_of":
			b.AsOf, err = a.readAsOf(c.Context(), value)
		case "dry_run":
			b.dryRun, err = readBool(key, value)
		case "everything":
			everything, err = readBool(key, value)
		}
		if err != nil {
			return b, err
		}
	}
	if err := checkBulkAction(b.Action); err != nil {
		return b, err
	}
	return b, a.readBulkFilter(c, filter, everything, &b.Request)
}

// checkBulkAction refuses an action that no operation has.
func checkBulkAction(name string) error {
	if name != bulk.Replay && !slices.Contains(contract.Actions, name) {
		return invalid("action must be one of " + strings.Join(contract.Actions, ", ") + ", " +
			bulk.Replay)
	}
	return nil
}

// readAsOf reads the time of a preview that an operation is confirmed by.
func (a *API) readAsOf(ctx context.Context, raw []byte) (asOf time.Time, err error) {
	text, err := strictjson.String(raw)
	if err != nil {
		return asOf, invalid("as_of must be a time as a dry run answers it")
	}
	return a.parseAsOf(ctx, text)
}

// parseAsOf reads the time of a preview. One to come is refused: it would mean jobs that nobody has
// seen.
func (a *API) parseAsOf(ctx context.Context, text string) (asOf time.Time, err error) {
	if err := readTime(bodyFilter{"as_of": text}, "as_of", &asOf); err != nil {
		return asOf, err
	}
	now, err := a.Engine.StoreTime(ctx)
	if err != nil {
		return asOf, err
	}
	if asOf.After(now) {
		return asOf, invalid("as_of must not be in the future")
	}
	return asOf, nil
}

// ReadBulk reads an operation from the fields of a form: action, rate, limit, canary, as_of and the
// members of the filter. A field without a value is as one that is left out.
func (a *API) ReadBulk(c *httpapi.Call, form url.Values) (r bulk.Request, err error) {
	r.Action = form.Get("action")
	if err := checkBulkAction(r.Action); err != nil {
		return r, err
	}
	for _, n := range []struct {
		name  string
		p     *int
		limit int
	}{{"rate", &r.Rate, maxBulkRate}, {"limit", &r.Limit, maxBulkLimit},
		{"canary", &r.Canary, maxBulkCanary}} {
		if text := form.Get(n.name); text != "" {
			value, err := strconv.ParseUint(text, 10, 31)
			if err != nil || int(value) > n.limit {
				return r, limitError(n.name, n.limit)
			}
			*n.p = int(value)
		}
	}
	if text := form.Get(AsOf); text != "" {
		if r.AsOf, err = a.parseAsOf(c.Context(), text); err != nil {
			return r, err
		}
	}
	allowed := jobFilterNames
	if r.Action == bulk.Replay {
		allowed = deadLetterFilterNames
	}
	f := bodyFilter{}
	for _, name := range allowed {
		if value := form.Get(name); value != "" {
			f[name] = value
		}
	}
	return r, a.setBulkFilter(c, f, form.Get("everything") == "true", &r)
}

// BulkFields are the fields of a form that ReadBulk reads.
func BulkFields() []string {
	all := append([]string{"action", "rate", "limit", "canary", AsOf, "everything"},
		jobFilterNames...)
	return append(all, deadLetterFilterNames...)
}

// readBool reads true or false.
func readBool(name string, raw []byte) (bool, error) {
	value, err := strictjson.Bool(raw)
	if err != nil {
		return false, invalid(name + " must be true or false")
	}
	return value, nil
}

// deadLetterFilterNames are the members of a filter of dead letters (AD-050).
var deadLetterFilterNames = []string{"contract", "queue", "fingerprint", "error", "from", "to"}

// readBulkFilter reads the filter that goes with the action (G-AD-11). One that names nothing is
// refused, unless everything is meant.
func (a *API) readBulkFilter(c *httpapi.Call, raw []byte, everything bool,
	r *bulk.Request) error {
	allowed := jobFilterNames
	if r.Action == bulk.Replay {
		allowed = deadLetterFilterNames
	}
	f, err := readFilter(raw, allowed)
	if err != nil {
		return err
	}
	return a.setBulkFilter(c, f, everything, r)
}

// setBulkFilter sets the filter of an operation.
func (a *API) setBulkFilter(c *httpapi.Call, f bodyFilter, everything bool,
	r *bulk.Request) error {
	if err := a.disclosureTo(c).checkSearch(f); err != nil {
		return err
	}
	if len(f) == 0 && !everything {
		return invalid("the filter names nothing; everything: true means all")
	}
	if r.Action == bulk.Replay {
		deadLetters, err := a.readDeadLetterFilter(f)
		r.DeadLetters = &deadLetters
		return err
	}
	jobs, err := a.readJobFilter(c.Context(), f, r.AsOf)
	r.Jobs = &jobs
	return err
}
