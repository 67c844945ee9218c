package account_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/testkit"
)

// WH-005: the secret of a contract is the same on all nodes with one pepper, another one for each
// contract, and never one under another pepper.
func TestContractSecrets(t *testing.T) {
	onEveryDatabase(t, func(w *world) {
		e := testkit.NewEngine(w, w.store, w.clock)
		secrets, err := account.NewContractSecrets(e, pepper)
		w.noError(err)
		seen := map[string]string{}
		for _, contract := range []string{"taskflow", "relay", "images", "fetchbox"} {
			secret, err := secrets.Secret(w.Context(), contract)
			w.noError(err)
			encoded, ok := strings.CutPrefix(secret, "whsec_")
			raw, err := base64.StdEncoding.DecodeString(encoded)
			if !ok || err != nil || len(raw) != 32 || seen[secret] != "" {
				w.Errorf("WH-005 the secret of %s is %q", contract, secret)
			}
			seen[secret] = contract
			known, err := account.ContractSecret(pepper, contract)
			if err != nil || known != secret {
				w.Errorf("WH-005 a command finds %q, %v", known, err)
			}
		}
		other := testkit.NewEngine(w, w.openStore(), w.clock)
		again, err := account.NewContractSecrets(other, pepper)
		w.noError(err)
		if secret, err := again.Secret(w.Context(), "relay"); err != nil || seen[secret] != "relay" {
			w.Errorf("WH-005 another node has %q, %v", secret, err)
		}
		foreign, err := account.NewContractSecrets(other, bytes.Repeat([]byte("another "), 4))
		w.noError(err)
		for range 2 {
			if secret, err := foreign.Secret(w.Context(), "relay"); secret != "" ||
				!errors.Is(err, account.ErrContractPepper) {
				w.Errorf("WH-005 with another pepper: %q, %v", secret, err)
			}
		}
	})
	if _, err := account.NewContractSecrets(nil, []byte("short")); err == nil {
		t.Error("WH-005 a short pepper is taken")
	}
}
