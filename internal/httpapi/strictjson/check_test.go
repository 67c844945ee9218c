package strictjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// G-X-15, G-RL-26: what is refused, where, and in which words.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	const end = "unexpected end of input"
	tests := []struct {
		text   string
		offset int64
		msg    string
	}{
		{"", 0, end},
		{" \n\t\r ", 5, end},
		{"{", 1, end},
		{"[", 1, end},
		{"[1", 2, end},
		{"[1,", 3, end},
		{`{"a`, 3, end},
		{`{"a"`, 4, end},
		{`{"a":`, 5, end},
		{`{"a":1`, 6, end},
		{`{"a":1,`, 7, end},
		{`"`, 1, end},
		{`"\`, 2, end},
		{`"\u00`, 5, end},
		{"-", 1, end},
		{"1.", 2, end},
		{"1e", 2, end},
		{"1e+", 3, end},
		{"tru", 3, end},
		{"nul ", 3, "unexpected character ' '"},
		{"truE", 3, "unexpected character 'E'"},
		{"NaN", 0, "unexpected character 'N'"},
		{"Infinity", 0, "unexpected character 'I'"},
		{"+1", 0, "unexpected character '+'"},
		{".5", 0, "unexpected character '.'"},
		{"-x", 1, "unexpected character 'x'"},
		{"1.e1", 2, "unexpected character 'e'"},
		{"[01]", 2, "unexpected character '1'"},
		{"[1 2]", 3, "unexpected character '2'"},
		{"[1,]", 3, "unexpected character ']'"},
		{"[,1]", 1, "unexpected character ','"},
		{"[1}", 2, "unexpected character '}'"},
		{`{"a":1]`, 6, "unexpected character ']'"},
		{`{"a":1,}`, 7, "unexpected character '}'"},
		{`{"a" 1}`, 5, "unexpected character '1'"},
		{`{"a"}`, 4, "unexpected character '}'"},
		{`{a:1}`, 1, "unexpected character 'a'"},
		{`{1:1}`, 1, "unexpected character '1'"},
		{`{"a":}`, 5, "unexpected character '}'"},
		{`{,}`, 1, "unexpected character ','"},
		{`'a'`, 0, `unexpected character '\''`},
		{"\"a\nb\"", 2, `unexpected character '\n'`},
		{"\"\x00\"", 1, `unexpected character '\x00'`},
		{`"\x"`, 2, "unexpected character 'x'"},
		{`"\u12G4"`, 5, "unexpected character 'G'"},
		{`"\U1234"`, 2, "unexpected character 'U'"},
		{"[1]/**/", 3, "trailing data"},
		{"{}{}", 2, "trailing data"},
		{"1 2", 2, "trailing data"},
		{"01", 1, "trailing data"},
		{"truee", 4, "trailing data"},
		{"[]]", 2, "trailing data"},
		{"null\x00", 4, "trailing data"},
		{"1\v", 1, "trailing data"},
		{"\uFEFF1", 0, `unexpected character '\ufeff'`},
		{"\u00A01", 0, `unexpected character '\u00a0'`},
		{"é", 0, "unexpected character 'é'"},
		{"\xff", 0, "invalid UTF-8"},
		{"1\xff", 1, "invalid UTF-8"},
		{"\"ab\xff\"", 3, "invalid UTF-8"},
		{"\"\xc3\"", 1, "invalid UTF-8"},             // cut short
		{"\"\xc0\xaf\"", 1, "invalid UTF-8"},         // overlong
		{"\"\xed\xa0\x80\"", 1, "invalid UTF-8"},     // a surrogate
		{"\"\xf4\x90\x80\x80\"", 1, "invalid UTF-8"}, // beyond U+10FFFF
		{"{\"\xff\":1}", 2, "invalid UTF-8"},
	}
	for _, tt := range tests {
		err := Check([]byte(tt.text))
		var got *SyntaxError
		if !errors.As(err, &got) {
			t.Errorf("Check(%q) = %v, want a *SyntaxError", tt.text, err)
			continue
		}
		if got.Offset != tt.offset || got.Msg != tt.msg {
			t.Errorf("Check(%q) = %q at %d, want %q at %d", tt.text, got.Msg, got.Offset, tt.msg,
				tt.offset)
		}
	}
	if got, want := (&SyntaxError{7, "trailing data"}).Error(),
		"trailing data at byte 7"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"0", "-0", "1.0", "1e1", "1E+400", "-1.25e-3", "true", "false", "null", `""`, "[]", "{}",
		" [ ] ", "\t{\r\n}\n",
		`"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"`, `"\ud800"`, `"\u0000"`, `{"":0}`, `{"a":1,"a":2}`,
		"\"\x7f\"",
		"\"\u2028 é 日本 \U0001F600 \uFFFD \uFEFF\"", `[1,[2,{"a":[{}, [ ] ]}],"]}"]`,
		`[[],{},[[]],{"a":{}}]`, strings.Repeat("1", 5000), `{"a" : 1 , "b" : [ 1 , 2 ] }`,
	} {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("Check(%q) = %v", text, err)
		}
	}
}

// G-RL-26: 512 levels from the document's start, whatever they are made of; closed levels do not
// count.
func TestCheckDepth(t *testing.T) {
	t.Parallel()
	nest := func(open, shut string, n int) string {
		return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n)
	}
	for name, text := range map[string]string{
		"arrays":  nest("[", "]", 512),
		"objects": nest(`{"a":`, "}", 512),
		"mixed":   nest(`{"a":[`, "]}", 256),
		"flat":    "[" + strings.Repeat("[[]],", 5000) + "1]",
	} {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"arrays":       nest("[", "]", 513),
		"objects":      nest(`{"a":`, "}", 513),
		"mixed":        "[" + nest(`{"a":[`, "]}", 256) + "]",
		"empty inside": strings.Repeat("[", 513),
		"only opened":  strings.Repeat("[", 1<<20),
	} {
		var got *SyntaxError
		if err := Check([]byte(text)); !errors.As(err, &got) ||
			got.Msg != "nested deeper than 512" {
			t.Errorf("%s: %v, want nested deeper than 512", name, err)
		}
	}
}

// Brackets of the two kinds must not be confused at any depth: one bit per level is remembered.
func TestCheckBracketsMatch(t *testing.T) {
	t.Parallel()
	for depth := 1; depth <= MaxDepth; depth++ {
		var text []byte
		for i := range depth {
			if i*i%7 < 3 {
				text = append(text, `{"a":`...)
			} else {
				text = append(text, '[')
			}
		}
		text = append(text, '1')
		for i := depth - 1; i >= 0; i-- {
			if i*i%7 < 3 {
				text = append(text, '}')
			} else {
				text = append(text, ']')
			}
		}
		if err := Check(text); err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
		last := len(text) - 1
		text[last] ^= '}' ^ ']'
		if Check(text) == nil {
			t.Fatalf("depth %d: the wrong bracket was accepted", depth)
		}
	}
}

// The walk and the readers of single values stay off the heap; the iterators are inlined.
func TestNoAllocation(t *testing.T) {
	body := []byte(relayBatch)
	n := testing.AllocsPerRun(100, func() {
		if err := Check(body); err != nil {
			t.Error(err)
		}
		for _, job := range Elements(body) {
			for name, value := range Members(job) {
				switch string(name) {
				case "max_retries":
					if _, err := Int(value, 32); err != nil {
						t.Error(err)
					}
				case "run_at":
					if _, err := Time(value); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// nestingDepth measures nesting in a text that is valid JSON.
func nestingDepth(text []byte) (deepest int) {
	level, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch ch := text[i]; {
		case inString && ch == '\\':
			i++
		case ch == '"':
			inString = !inString
		case inString:
		case ch == '{' || ch == '[':
			level++
			deepest = max(deepest, level)
		case ch == '}' || ch == ']':
			level--
		}
	}
	return deepest
}

// Check is encoding/json's grammar and two rules more. Where it refuses, everything before the
// offset was fine.
func FuzzCheck(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add([]byte(seed))
	}
	f.Add([]byte(strings.Repeat("[", 513) + strings.Repeat("]", 513)))
	f.Fuzz(func(t *testing.T, text []byte) {
		want := json.Valid(text) && utf8.Valid(text) && nestingDepth(text) <= MaxDepth
		err := Check(text)
		if (err == nil) != want {
			t.Fatalf("Check(%q) = %v, want ok %v", text, err, want)
		}
		if err == nil {
			return
		}
		var got *SyntaxError
		if !errors.As(err, &got) || got.Offset < 0 || got.Offset > int64(len(text)) ||
			got.Msg == "" {
			t.Fatalf("Check(%q) = %#v", text, err)
		}
		if !utf8.Valid(text[:got.Offset]) {
			t.Fatalf("Check(%q) went past invalid UTF-8 before %d", text, got.Offset)
		}
	})
}

// fuzzSeeds are shared by the fuzz targets that read whole texts.
var fuzzSeeds = []string{
	relayBatch, "", "[]", "{}", " [1, 2.5e3, \"a\\u00e9\\ud83d\\ude00\", true, false, null] ",
	`{"a":{"b":[{}]},"a":2}`,
	`{"\u0061":1,"\ud800":"\udc00\u0000"}`, "{\"\xff\":1}", `[1,]`, `{"a":1,}`, `"\`, `{"a`,
	`{"a":"\`, `[[[[`, "\xef\xbb\xbf[]",
	`{"a" : [ 1 , { "b" : "}]\"" } ] , "c":-0.0e-0}`, "1 2", `"\u12`, `{:}`, `{"a":,}`, `[,]`,
}

// relayBatch is what Relay reads all day.
const relayBatch = `[
  {"id":"5f6e7c1a-0b1d-4c8e-9a53-1f2e3d4c5b6a","job_timeout":"PT10M","heartbeat_timeout":"PT30S","max_retries":3,
   "recreate":true,"run_at":"2026-11-21T09:15:00.250+01:00",
   "payload":{"user":184467440737095516,"mail":"anna@example.org","text":"Grüße, \"Anna\"","tags":["a","b",{"c":null}],"n":1.50}},
  {"id":"second","max_retries":0,"payload":[1,2,3]}
]`
