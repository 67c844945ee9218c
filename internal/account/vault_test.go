package account

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestVault(t *testing.T) {
	t.Parallel()
	pepper := bytes.Repeat([]byte{1}, minPepperBytes)
	v, err := NewVault(pepper)
	if err != nil {
		t.Fatal(err)
	}
	same, _ := NewVault(pepper)
	for _, plain := range []string{"", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		strings.Repeat("x", 1<<16)} {
		one, _ := v.Seal([]byte(plain))
		two, _ := v.Seal([]byte(plain))
		if one == two || (len(plain) > 8 && strings.Contains(one, plain[8:])) {
			t.Error("a sealed secret shows what it is")
		}
		if got, err := same.Open(one); err != nil || string(got) != plain {
			t.Errorf("another node opens %q as %q, %v", one, got, err)
		}
	}
	sealed, _ := v.Seal([]byte("secret"))
	for i := range sealed {
		changed := []byte(sealed)
		changed[i] ^= 1
		if _, err := v.Open(string(changed)); err == nil {
			t.Errorf("changed at %d it was opened", i)
		}
	}
	for _, text := range []string{"", "v1:", "v1:AAAA", sealed[3:], sealed + "A"} {
		if _, err := v.Open(text); err == nil {
			t.Errorf("%q was opened", text)
		}
	}
	if other, _ := NewVault(bytes.Repeat([]byte{2}, minPepperBytes)); true {
		if _, err := other.Open(sealed); err == nil {
			t.Error("it was opened under another pepper")
		}
	}
	if _, err := NewVault(pepper[1:]); err == nil {
		t.Error("a short pepper was taken")
	}
}

func TestPepper(t *testing.T) {
	t.Parallel()
	t.Run("it is made once, for this user alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "new", "pepper")
		got := make([][]byte, 16)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				var err error
				if got[i], err = LoadPepper(path); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, p := range got {
			if len(p) != minPepperBytes || !bytes.Equal(p, got[0]) {
				t.Fatalf("got peppers of %d and %d bytes that are not one", len(p), len(got[0]))
			}
		}
		info, err := os.Stat(path)
		if err != nil || (runtime.GOOS != "windows" && info.Mode().Perm() != 0o600) {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
			t.Errorf("it left %v", left)
		}
	})
	var raw [minPepperBytes]byte
	_, _ = rand.Read(raw[:])
	raw[0], raw[31] = 0xff, '\n'
	text := hex.EncodeToString(raw[:])
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
		want    string // the pepper, or part of the error
		fails   bool
	}{
		"plain":           {string(raw[:]), 0o600, string(raw[:]), false},
		"hex":             {text, 0o600, string(raw[:]), false},
		"hex with a line": {strings.ToUpper(text) + "\r\n", 0o640, string(raw[:]), false},
		"a passphrase": {strings.Repeat("pass phrase ", 3) + "\n", 0o400,
			strings.Repeat("pass phrase ", 3), false},
		"empty":     {"", 0o600, "0 bytes, at least 32", true},
		"short":     {string(raw[1:]), 0o600, "31 bytes, at least 32", true},
		"short hex": {text[:40], 0o600, "20 bytes, at least 32", true},
		"odd hex":   {text + "a", 0o600, "odd number", true},
		"huge": {strings.Repeat("x", maxPepperFileBytes+1), 0o600, "larger than",
			true},
		"readable by all":   {text, 0o604, "chmod 600", true},
		"writable by group": {text, 0o620, "chmod 600", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pepper")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			got, err := LoadPepper(path)
			switch {
			case !c.fails && (err != nil || string(got) != c.want):
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			case c.fails && (err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Count(err.Error(), path) != 1):
				t.Errorf("got %v, want an error with the path once and %q", err, c.want)
			case c.fails && strings.Contains(err.Error(), text[:8]):
				t.Errorf("the error has the pepper: %v", err)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		t.Parallel()
		if _, err := LoadPepper(t.TempDir()); err == nil {
			t.Error("it was taken")
		}
	})
}
