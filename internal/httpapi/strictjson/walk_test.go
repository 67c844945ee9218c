package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

func formatMembers(raw string) string {
	var b strings.Builder
	for name, value := range Members([]byte(raw)) {
		fmt.Fprintf(&b, "%s=%s;", name, value)
	}
	return b.String()
}

// G-RL-26, G-RL-12: names in their exact case, doubled ones twice, values as they were sent.
func TestMembers(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{}`:                                  "",
		` { } `:                               "",
		`{"a":1,"A":2,"a":3}`:                 "a=1;A=2;a=3;",
		"\t{ \"a\" :\n 1 , \"b\": \r\"x\" } ": `a=1;b="x";`,
		`{"\u0061\n":1}`:                      "a\n=1;",
		`{"":null}`:                           "=null;",
		`{"o":{"a":[1, 2]},"l":[ {"}":"]"} ],"s":1}`: `o={"a":[1, 2]};l=[ {"}":"]"} ];s=1;`,
		`{"q\"":"\\\"}","z":"\\"}`:                   `q"="\\\"}";z="\\";`,
		`{"n":-1.5e+3,"t":true,"f":false}`:           "n=-1.5e+3;t=true;f=false;",
		`{"\ud800":1}`:                               "\uFFFD=1;",
		`[1]`:                                        "",
		`"a"`:                                        "",
		``:                                           "",
	} {
		if got := formatMembers(raw); got != want {
			t.Errorf("Members(%s) = %s, want %s", raw, got, want)
		}
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`[]`:                                 "",
		` [ ] `:                              "",
		`[1]`:                                "0=1;",
		"[ 1 ,\n\"a,]\" , [ 2 ], {\"]\":1}]": `0=1;1="a,]";2=[ 2 ];3={"]":1};`,
		`{"a":1}`:                            "",
		`7`:                                  "",
		``:                                   "",
	} {
		var b strings.Builder
		for i, value := range Elements([]byte(raw)) {
			fmt.Fprintf(&b, "%d=%s;", i, value)
		}
		if got := b.String(); got != want {
			t.Errorf("Elements(%s) = %s, want %s", raw, got, want)
		}
	}
}

func TestRawMembers(t *testing.T) {
	t.Parallel()
	var errs []error
	for name := range RawMembers([]byte(`{"ok":1,"\ud800":2,"\u0000":3}`)) {
		_, err := String(name)
		errs = append(errs, err)
	}
	if want := []error{nil, ErrSurrogate, ErrNUL}; !reflect.DeepEqual(errs, want) {
		t.Errorf("errors of the names = %v, want %v", errs, want)
	}
}

// Leaving the loop early must leave the walk; what is yielded must not let an append write into the
// input.
func TestWalkIsSafeToLeaveAndToAppendTo(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"a":1,"b":2}`)
	for name, value := range Members(raw) {
		_, _ = append(name, "zzz"...), append(value, "zzz"...)
		break
	}
	for _, value := range Elements([]byte(`[1,2]`)) {
		_ = append(value, "zzz"...)
		break
	}
	if string(raw) != `{"a":1,"b":2}` {
		t.Errorf("the input became %s", raw)
	}
}

// G-RL-25, G-TF-16.
func TestTrim(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{"": "", " \t\r\n": "", " a b ": "a b",
		"\v1\v": "\v1\v", "\u00a0": "\u00a0"} {
		if got := Trim([]byte(raw)); string(got) != want {
			t.Errorf("Trim(%q) = %q, want %q", raw, got, want)
		}
	}
}

// rebuild writes a checked value again from what the walk yields, without white space.
func rebuild(dst, raw []byte) []byte {
	sep := byte(0)
	comma := func() {
		if sep != 0 {
			dst = append(dst, sep)
		}
		sep = ','
	}
	switch KindOf(raw) {
	case KindObject:
		dst = append(dst, '{')
		for name, value := range RawMembers(raw) {
			comma()
			dst = append(append(dst, name...), ':')
			dst = rebuild(dst, value)
		}
		return append(dst, '}')
	case KindArray:
		dst = append(dst, '[')
		for _, value := range Elements(raw) {
			comma()
			dst = rebuild(dst, value)
		}
		return append(dst, ']')
	default:
		return append(dst, Trim(raw)...)
	}
}

// On checked text the walk loses nothing: rebuilt, it is json.Compact's text, and each object's
// members are those the standard decoder finds. On any other text it ends without a panic.
func FuzzWalk(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		if Check(text) != nil {
			for _, value := range Elements(text) {
				KindOf(value)
			}
			for name, value := range Members(text) {
				_, _ = len(name), Trim(value)
			}
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			t.Fatal(err)
		}
		if got := rebuild(nil, text); !bytes.Equal(got, compact.Bytes()) {
			t.Fatalf("rebuilt %s\nwant    %s", got, compact.Bytes())
		}
		if KindOf(text) == KindObject {
			last := map[string]json.RawMessage{}
			for name, value := range Members(text) {
				last[string(name)] = value
			}
			want := map[string]json.RawMessage{}
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(last, want) {
				t.Fatalf("members %q, want %q", last, want)
			}
		}
		if !bytes.Equal(text, before) {
			t.Fatalf("the input was written to")
		}
	})
}

// relayJob is what a contract decodes; both benchmarks fill it.
type relayJob struct {
	ID         string          `json:"id"`
	JobTimeout string          `json:"job_timeout"`
	Heartbeat  string          `json:"heartbeat_timeout"`
	MaxRetries int64           `json:"max_retries"`
	Recreate   bool            `json:"recreate"`
	RunAt      string          `json:"run_at"`
	Payload    json.RawMessage `json:"payload"`
}

func (j *relayJob) decode(raw []byte) (err error) {
	for name, value := range Members(raw) {
		switch string(name) {
		case "id":
			j.ID, err = String(value)
		case "job_timeout":
			j.JobTimeout, err = String(value)
		case "heartbeat_timeout":
			j.Heartbeat, err = String(value)
		case "max_retries":
			j.MaxRetries, err = Int(value, 32)
		case "recreate":
			j.Recreate, err = Bool(value)
		case "run_at":
			j.RunAt, err = String(value)
		case "payload":
			j.Payload = value
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeBatch(body []byte) (jobs []relayJob, err error) {
	if err := Check(body); err != nil {
		return nil, err
	}
	for _, raw := range Elements(body) {
		var j relayJob
		if err := j.decode(raw); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func TestDecodeBatchAsEncodingJSON(t *testing.T) {
	t.Parallel()
	got, err := decodeBatch([]byte(relayBatch))
	if err != nil {
		t.Fatal(err)
	}
	var want []relayJob
	if err := json.Unmarshal([]byte(relayBatch), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func BenchmarkDecodeBatch(b *testing.B) {
	body := []byte(relayBatch)
	b.Run("strictjson", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeBatch(body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var jobs []relayJob
			if err := json.Unmarshal(body, &jobs); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	texts := map[string][]byte{
		"batch":   []byte(relayBatch),
		"ascii":   []byte(`["` + strings.Repeat("lorem ipsum dolor sit amet ", 2000) + `"]`),
		"script":  []byte(`["` + strings.Repeat("日本語テキスト", 2000) + `"]`),
		"numbers": []byte("[" + strings.Repeat("1234.5e6, ", 5000) + "0]"),
	}
	for name, text := range texts {
		b.Run(name+"/strictjson", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if err := Check(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !json.Valid(text) {
					b.Fatal(io.ErrUnexpectedEOF)
				}
			}
		})
	}
}
