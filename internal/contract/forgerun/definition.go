package forgerun

import (
	"errors"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi/jsontext"
)

// definition is what the server makes of a request: what a run does (FR-075). It
// is the definition of the job in the store.
type definition struct {
	kind        string
	durationMS  int64
	shouldFail  bool
	payloadSize int64     // bytes
	executionAt time.Time // zero for an instant job (FR-077)
	seed        int64     // the request's time in milliseconds (G-FR-36)
	callback    string    // for whoever tells of events and reads nothing else of a job
}

// define makes the definition of a kind asked for at a time.
func (r *rules) define(k *kind, executionAt time.Time, callback string, seed int64) definition {
	return definition{kind: k.name, durationMS: k.duration(r.maxRunTime).Milliseconds(), shouldFail: k.fails(),
		payloadSize: k.kib << 10, executionAt: executionAt, seed: seed, callback: callback}
}

// append writes the members that a client sees.
func (d *definition) append(o *object) {
	o.text("work_kind", d.kind)
	o.number("duration_ms", d.durationMS)
	o.flag("should_fail", d.shouldFail)
	o.number("payload_size", d.payloadSize)
	if !d.executionAt.IsZero() {
		o.time("execution_at", d.executionAt)
	}
	o.number("seed", d.seed)
}

// encode writes a definition as it is stored.
func (d *definition) encode() []byte {
	o := begin(make([]byte, 0, 192))
	d.append(&o)
	if d.callback != "" {
		o.text("callback", d.callback)
	}
	return o.end()
}

var errNoDefinition = errors.New("the job's definition is missing or cannot be read")

// decodeDefinition reads what encode wrote. Anything else is no definition: a run
// is never made up (FR-181).
func decodeDefinition(raw []byte) (d definition, err error) {
	if len(raw) == 0 || jsontext.Check(raw) != nil || jsontext.KindOf(raw) != jsontext.KindObject {
		return d, errNoDefinition
	}
	var errs [7]error
	errs[0], errs[1], errs[2] = errNoDefinition, errNoDefinition, errNoDefinition
	for name, value := range jsontext.Members(raw) {
		switch string(name) {
		case "work_kind":
			d.kind, errs[0] = jsontext.String(value)
		case "duration_ms":
			d.durationMS, errs[1] = jsontext.Int(value, 64)
		case "payload_size":
			d.payloadSize, errs[2] = jsontext.Int(value, 64)
		case "should_fail":
			d.shouldFail, errs[3] = jsontext.Bool(value)
		case "execution_at":
			d.executionAt, errs[4] = jsontext.Time(value)
		case "seed":
			d.seed, errs[5] = jsontext.Int(value, 64)
		case "callback":
			d.callback, errs[6] = jsontext.String(value)
		}
	}
	if errors.Join(errs[:]...) != nil || kindByName[d.kind] == nil || d.durationMS < 0 || d.payloadSize < 0 {
		return definition{}, errNoDefinition
	}
	return d, nil
}

// object builds a JSON object.
type object struct{ b []byte }

func begin(b []byte) object { return object{append(b, '{')} }

func (o *object) end() []byte { return append(o.b, '}') }

func (o *object) name(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(name, value string) {
	o.name(name)
	o.b = jsontext.AppendString(o.b, value)
}

// optional writes null for an empty text.
func (o *object) optional(name, value string) {
	if value == "" {
		o.raw(name, "null")
		return
	}
	o.text(name, value)
}

func (o *object) number(name string, value int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *object) flag(name string, value bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, value)
}

// time writes null for the zero time.
func (o *object) time(name string, value time.Time) {
	if value.IsZero() {
		o.raw(name, "null")
		return
	}
	o.name(name)
	o.b = jsontext.AppendTime(o.b, value)
}

func (o *object) raw(name, value string) {
	o.name(name)
	o.b = append(o.b, value...)
}

// object writes a member that is an object.
func (o *object) object(name string, fill func(*object)) {
	o.name(name)
	inner := begin(o.b)
	fill(&inner)
	o.b = inner.end()
}

// array writes a member that is an array of n objects.
func (o *object) array(name string, n int, fill func(i int, o *object)) {
	o.name(name)
	o.b = append(o.b, '[')
	for i := range n {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		inner := begin(o.b)
		fill(i, &inner)
		o.b = inner.end()
	}
	o.b = append(o.b, ']')
}

// texts writes a member that is an array of strings.
func (o *object) texts(name string, values []string) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = jsontext.AppendString(o.b, v)
	}
	o.b = append(o.b, ']')
}
