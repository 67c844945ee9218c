package jsontext

import (
	"strconv"
	"time"
)

// Object writes a JSON object member by member, in the order of the calls. Names are the server's own words or were
// strings of checked text; that none is written twice is up to the caller.
type Object struct{ b []byte }

// NewObject begins an object behind what dst holds.
func NewObject(dst []byte) Object { return Object{append(dst, '{')} }

// End returns the bytes with the whole object. Nothing may be written after it.
func (o *Object) End() []byte { return append(o.b, '}') }

func (o *Object) name(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = AppendString(o.b, name)
	o.b = append(o.b, ':')
}

// Text writes a string.
func (o *Object) Text(name, value string) {
	o.name(name)
	o.b = AppendString(o.b, value)
}

// Optional writes a string, null for an empty one.
func (o *Object) Optional(name, value string) {
	if value == "" {
		o.Null(name)
		return
	}
	o.Text(name, value)
}

// Number writes an integer.
func (o *Object) Number(name string, value int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

// Flag writes true or false.
func (o *Object) Flag(name string, value bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, value)
}

// Time writes a time as AppendTime does, null for the zero time.
func (o *Object) Time(name string, value time.Time) {
	if value.IsZero() {
		o.Null(name)
		return
	}
	o.name(name)
	o.b = AppendTime(o.b, value)
}

// Null writes null.
func (o *Object) Null(name string) { o.Raw(name, []byte("null")) }

// Raw writes checked text byte for byte.
func (o *Object) Raw(name string, value []byte) {
	o.name(name)
	o.b = append(o.b, value...)
}

// Object writes an object that fill gives its members.
func (o *Object) Object(name string, fill func(*Object)) {
	o.name(name)
	inner := NewObject(o.b)
	fill(&inner)
	o.b = inner.End()
}

// Objects writes an array of n objects.
func (o *Object) Objects(name string, n int, fill func(i int, o *Object)) {
	o.name(name)
	o.b = append(o.b, '[')
	for i := range n {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		inner := NewObject(o.b)
		fill(i, &inner)
		o.b = inner.End()
	}
	o.b = append(o.b, ']')
}

// Texts writes an array of strings.
func (o *Object) Texts(name string, values []string) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = AppendString(o.b, v)
	}
	o.b = append(o.b, ']')
}
