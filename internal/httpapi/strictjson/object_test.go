package strictjson

import (
	"testing"
	"time"
)

func TestObject(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	for want, fill := range map[string]func(*Object){
		`{}`:                        func(*Object) {},
		`{"a":"x\"y","":""}`:        func(o *Object) { o.Text("a", `x"y`); o.Text("", "") },
		`{"q\"\n":1}`:               func(o *Object) { o.Int("q\"\n", 1) },
		`{"a":"x","b":null}`:        func(o *Object) { o.Optional("a", "x"); o.Optional("b", "") },
		`{"a":9223372036854775807}`: func(o *Object) { o.Int("a", 1<<63-1) },
		`{"a":true,"b":false}`:      func(o *Object) { o.Bool("a", true); o.Bool("b", false) },
		`{"a":"2026-01-02T03:04:05.6Z","b":null}`: func(o *Object) {
			o.Time("a", when)
			o.Time("b", time.Time{})
		},
		`{"a":null,"b": [1,  2.0e9] ,"c":3}`: func(o *Object) {
			o.Null("a")
			o.Raw("b", []byte(` [1,  2.0e9] `))
			o.Int("c", 3)
		},
		`{"a":{},"b":{"c":{"d":1},"e":2},"f":3}`: func(o *Object) {
			o.Object("a", func(*Object) {})
			o.Object("b", func(o *Object) {
				o.Object("c", func(o *Object) { o.Int("d", 1) })
				o.Int("e", 2)
			})
			o.Int("f", 3)
		},
		`{"a":[],"b":[{"n":0},{"n":1},{}],"c":[],"d":["x"],"e":["x","\\"],"f":1}`: func(o *Object) {
			o.Objects("a", 0, nil)
			o.Objects("b", 3, func(i int, o *Object) {
				if i < 2 {
					o.Int("n", int64(i))
				}
			})
			o.Texts("c", nil)
			o.Texts("d", []string{"x"})
			o.Texts("e", []string{"x", `\`})
			o.Int("f", 1)
		},
	} {
		o := NewObject([]byte("before"))
		fill(&o)
		got := o.End()
		if string(got) != "before"+want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := Check(got[len("before"):]); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}
