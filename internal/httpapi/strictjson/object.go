package strictjson

import (
	"strconv"
	"time"
)

// Object writes a JSON object member by member, in the order of the calls. It does not check for
// duplicate names; the caller writes each name once.
type Object struct{ buf []byte }

// NewObject begins an object that is appended to dst.
func NewObject(dst []byte) Object { return Object{append(dst, '{')} }

// End returns dst with the complete object. The Object must not be used afterwards.
func (o *Object) End() []byte { return append(o.buf, '}') }

// name writes the name of the next member, after a comma unless it is the first.
func (o *Object) name(name string) {
	if o.buf[len(o.buf)-1] != '{' {
		o.buf = append(o.buf, ',')
	}
	o.buf = AppendString(o.buf, name)
	o.buf = append(o.buf, ':')
}

// Text writes a string.
func (o *Object) Text(name, value string) {
	o.name(name)
	o.buf = AppendString(o.buf, value)
}

// Optional writes a string, or null for an empty one.
func (o *Object) Optional(name, value string) {
	if value == "" {
		o.Null(name)
		return
	}
	o.Text(name, value)
}

// Int writes an integer.
func (o *Object) Int(name string, value int64) {
	o.name(name)
	o.buf = strconv.AppendInt(o.buf, value, 10)
}

// Bool writes true or false.
func (o *Object) Bool(name string, value bool) {
	o.name(name)
	o.buf = strconv.AppendBool(o.buf, value)
}

// Time writes a time as AppendTime does, or null for the zero time. A zero time is one that the job
// does not have, such as the end of a job that runs.
func (o *Object) Time(name string, value time.Time) {
	if value.IsZero() {
		o.Null(name)
		return
	}
	o.name(name)
	o.buf = AppendTime(o.buf, value)
}

// Null writes null.
func (o *Object) Null(name string) { o.Raw(name, []byte("null")) }

// Raw writes checked text byte for byte. value must be one JSON value that has passed Check, such
// as a payload: it is not looked at.
func (o *Object) Raw(name string, value []byte) {
	o.name(name)
	o.buf = append(o.buf, value...)
}

// Object writes an object whose members fill writes. fill must not keep its argument.
func (o *Object) Object(name string, fill func(*Object)) {
	o.name(name)
	inner := NewObject(o.buf)
	fill(&inner)
	o.buf = inner.End()
}

// Objects writes an array of n objects; fill writes the members of each.
func (o *Object) Objects(name string, n int, fill func(i int, o *Object)) {
	o.name(name)
	o.buf = append(o.buf, '[')
	for i := range n {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		inner := NewObject(o.buf)
		fill(i, &inner)
		o.buf = inner.End()
	}
	o.buf = append(o.buf, ']')
}

// Texts writes an array of strings.
func (o *Object) Texts(name string, values []string) {
	o.name(name)
	o.buf = append(o.buf, '[')
	for i, v := range values {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = AppendString(o.buf, v)
	}
	o.buf = append(o.buf, ']')
}
