package admin

import (
	"strings"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// disclosure says whether a caller sees what jobs carry: their definitions and bodies, the texts of
// failures, and what was made of these (AD-005, G-AD-03). Every answer writes such members by its
// methods, which write null where the caller does not, so this file alone decides.
type disclosure bool

// disclosureTo returns what the caller of a request sees: all, unless it has the read token and
// the setting operator.read_payloads is false.
func (a *API) disclosureTo(c *httpapi.Call) disclosure {
	return disclosure(a.ReadPayloads || callerOf(c).kind != readKind)
}

// text writes a text; null where there is none.
func (d disclosure) text(o *strictjson.Object, name, value string) {
	if !d {
		value = ""
	}
	o.Optional(name, value)
}

// textOf writes a text, or null.
func (d disclosure) textOf(o *strictjson.Object, name string, value *string) {
	if !d {
		value = nil
	}
	writeText(o, name, value)
}

// raw writes JSON; null where there is none.
func (d disclosure) raw(o *strictjson.Object, name string, value []byte) {
	if !d || len(value) == 0 {
		o.Null(name)
		return
	}
	o.Raw(name, value)
}

// limitEntry takes from an entry of the audit what a caller does not see: a bulk operation has a
// filter, which may search what jobs carry.
func (d disclosure) limitEntry(e *Entry) {
	if !bool(d) && strings.HasPrefix(e.Action, "bulk.") {
		e.Before, e.After = nil, nil
	}
}

// errHidden refuses what would tell of what jobs carry.
var errHidden = &httpapi.CodedError{Code: codeForbidden,
	Detail: "this token may not see or search what jobs carry (operator.read_payloads)"}

// checkSearch refuses filters that search what jobs carry (G-AD-03).
func (d disclosure) checkSearch(p parameters) error {
	if d {
		return nil
	}
	for _, name := range []string{"text", "error"} {
		if _, given, err := p.Query(name); given || err != nil {
			return errHidden
		}
	}
	return nil
}
