package taskflow_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// FuzzOnce: two requests count as one under an idempotency key if and only if their keys and their
// bodies are the same, but for white space around them.
func FuzzOnce(f *testing.F) {
	f.Add("k", "k", []byte(`{"name":"a"}`), []byte(" {\"name\":\"a\"}\n"))
	f.Add("k", "K", []byte(`{"a":1}`), []byte(`{"a":1.0}`))
	f.Add("", "\x00", []byte{}, []byte("\ufeff{}"))
	f.Add("\xff", "k k", []byte("{}"), []byte("{}\x00"))
	f.Fuzz(func(t *testing.T, keyA, keyB string, a, b []byte) {
		nameA, digestA, errA := taskflow.OnceOf(keyA, a)
		nameB, digestB, errB := taskflow.OnceOf(keyB, b)
		for key, err := range map[string]error{keyA: errA, keyB: errB} {
			if isKey := utf8.ValidString(key) && utf8.RuneCountInString(key) <= 255; isKey == (err != nil) {
				t.Fatalf("the key %q has %v", key, err)
			}
		}
		if errA != nil || errB != nil || keyA == "" || keyB == "" {
			return
		}
		isSame := bytes.Equal(strictjson.Trim(a), strictjson.Trim(b))
		if (nameA == nameB) != (keyA == keyB) || (digestA == digestB) != isSame {
			t.Fatalf("%q %q and %q %q: %s %s, %s %s", keyA, a, keyB, b, nameA, digestA, nameB,
				digestB)
		}
	})
}
