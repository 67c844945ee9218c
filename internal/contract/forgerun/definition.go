package forgerun

import (
	"errors"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// What a client asks for and what an attempt does are stored apart, as two bodies of the job:
//
//	request ─► jobSpec     what was asked for: decides whether a request repeats another
//	   │
//	   │ the work kind or, without one, a choice by the time of the request
//	   ▼
//	definition             what the catalogue says of the kind
//	   ├─► simulate        a worker of this node
//	   ├─► workPayload     a remote worker
//	   ├─► appendJob       the client (G-FR-38)
//	   └─► webhookEvent    the callback, without another read
//
// A definition is made once, with the job. Every attempt has the same one, also if the maximum run
// time has changed since (FR-075).

// definition says what an attempt does (FR-075). The server makes it from the request and stores it
// as the job's definition.
type definition struct {
	kind        string
	durationMS  int64
	shouldFail  bool
	payloadSize int64     // bytes
	executionAt time.Time // zero for an instant job (FR-077)
	seed        int64     // the request's time in milliseconds (G-FR-36)
	callback    string    // a copy of the request's, since deliveries do not load the request
}

// define returns the definition of a job of a kind. The catalogue leaves nothing open but the
// content of the output, which follows from seed and size.
func (r *definitionRules) define(k *kind, executionAt time.Time, callback string,
	seed int64) definition {
	return definition{
		kind:        k.name,
		durationMS:  k.duration(r.maxRunTime).Milliseconds(),
		shouldFail:  k.fails(),
		payloadSize: k.outputKiB << 10,
		executionAt: executionAt,
		seed:        seed,
		callback:    callback,
	}
}

// append writes the members that a client sees. The callback is not among them: an answer has it as
// a member of the job.
func (d *definition) append(o *strictjson.Object) {
	o.Text("work_kind", d.kind)
	o.Int("duration_ms", d.durationMS)
	o.Bool("should_fail", d.shouldFail)
	o.Int("payload_size", d.payloadSize)
	if !d.executionAt.IsZero() {
		o.Time("execution_at", d.executionAt)
	}
	o.Int("seed", d.seed)
}

// encode returns the definition as it is stored.
func (d *definition) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 192))
	d.append(&o)
	if d.callback != "" {
		o.Text("callback", d.callback)
	}
	return o.End()
}

// errNoDefinition is the one error of decodeDefinition; its text is the failure of such a job.
var errNoDefinition = errors.New("the job's definition is missing or cannot be read")

// decodeDefinition is the inverse of encode. Anything else is an error: the server never executes a
// job whose definition it cannot read (FR-181). Kind, duration and size are required; the other
// members may be missing.
func decodeDefinition(raw []byte) (d definition, err error) {
	if len(raw) == 0 || strictjson.Check(raw) != nil ||
		strictjson.KindOf(raw) != strictjson.KindObject {
		return d, errNoDefinition
	}
	var errs [7]error
	errs[0], errs[1], errs[2] = errNoDefinition, errNoDefinition, errNoDefinition
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "work_kind":
			d.kind, errs[0] = strictjson.String(value)
		case "duration_ms":
			d.durationMS, errs[1] = strictjson.Int(value, 64)
		case "payload_size":
			d.payloadSize, errs[2] = strictjson.Int(value, 64)
		case "should_fail":
			d.shouldFail, errs[3] = strictjson.Bool(value)
		case "execution_at":
			d.executionAt, errs[4] = strictjson.Time(value)
		case "seed":
			d.seed, errs[5] = strictjson.Int(value, 64)
		case "callback":
			d.callback, errs[6] = strictjson.String(value)
		}
	}
	if errors.Join(errs[:]...) != nil || kindByName[d.kind] == nil || d.durationMS < 0 ||
		d.payloadSize < 0 {
		return definition{}, errNoDefinition
	}
	return d, nil
}
