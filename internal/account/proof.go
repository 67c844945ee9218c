package account

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// A command that finds the operator's token in a folder knows where the server of that folder
// listens, and not who listens there now. Before it sends the token it asks (AD-008): a request
// without credentials carries a random text, and the answer, whatever its status, a proof that only
// who has the pepper can make:
//
//	command ── Millrace-Challenge: TEXT ─────────────────────────────────▶ whoever listens there
//	        ◀─ Millrace-Proof: HMAC(key of the pepper, TEXT + address) ──
//
// The address is that of the connection as both of its ends see it. So a program that passes the
// text on to the server gets a proof for another address, which is none. A proof says nothing about
// the pepper or the token, whoever asks for it.

// The headers of a challenge and of its proof.
const (
	ChallengeHeader = "Millrace-Challenge"
	ProofHeader     = "Millrace-Proof"
)

// purposeProof is what the key of proofs is derived from the pepper for. It must never change:
// commands and servers of different versions derive it.
const purposeProof = "millrace operator proof"

// ProofKey returns the key of the proofs of all servers with a pepper.
func ProofKey(pepper []byte) ([]byte, error) {
	return derive(pepper, purposeProof)
}

// Proof returns the proof for a challenge on a connection to an address.
func Proof(key []byte, challenge string, at netip.AddrPort) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(challenge + " " + netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()))
	return hex.EncodeToString(mac.Sum(nil))
}
