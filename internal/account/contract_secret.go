package account

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"sync/atomic"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// The callbacks of the jobs of a contract are signed with a secret of the contract (WH-005). Unless
// a setting gives it, it is derived from the pepper: so it is made with the first start, is the
// same on all nodes, and is in no store and no backup of one.

// purposeContractSecret is followed by the name of the contract. It must never change: receivers
// would refuse what they get.
const purposeContractSecret = "millrace callback secret "

// contractCheckKey is the key of the record by which a store recognises the pepper of them.
const contractCheckKey = "callbacks"

// ContractSecret returns the secret of a contract under a pepper, as whsec_ and base64.
func ContractSecret(pepper []byte, contract string) (string, error) {
	key, err := derive(pepper, purposeContractSecret+contract)
	return callbackPrefix + base64.StdEncoding.EncodeToString(key), err
}

// ErrContractPepper reports that other nodes sign callbacks under another pepper.
var ErrContractPepper = errors.New("the pepper is not the one that callbacks are signed under: " +
	"every node needs the same pepper file, or the setting callback_secret of each contract")

// ContractSecrets gives the secrets of contracts to a node.
type ContractSecrets struct {
	engine *engine.Engine
	pepper []byte
	check  []byte      // a value by which a store recognises the pepper
	bound  atomic.Bool // the store has recognised it
}

// NewContractSecrets makes the secrets under a pepper.
func NewContractSecrets(e *engine.Engine, pepper []byte) (*ContractSecrets, error) {
	check, err := derive(pepper, purposeContractSecret)
	return &ContractSecrets{engine: e, pepper: pepper, check: check}, err
}

// Secret returns the secret of a contract. The first call of the first node binds the store to the
// pepper; where it is bound to another one, the error is ErrContractPepper: a receiver would take
// the requests for forged.
func (s *ContractSecrets) Secret(ctx context.Context, contract string) (string, error) {
	if !s.bound.Load() {
		if err := s.bind(ctx); err != nil {
			return "", err
		}
		s.bound.Store(true)
	}
	return ContractSecret(s.pepper, contract)
}

func (s *ContractSecrets) bind(ctx context.Context) error {
	known := false
	err := s.engine.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
		known, err = s.recognises(r)
		return err
	})
	if err != nil || known {
		return err
	}
	return s.engine.ChangeRecords(ctx, checkKind, func(w engine.RecordWriter) error {
		known, err := s.recognises(w)
		if err != nil || known {
			return err
		}
		return w.UpsertRecords(job.Record{Kind: checkKind, Key: contractCheckKey, Body: s.check})
	})
}

// recognises reports whether the store is bound to the pepper.
func (s *ContractSecrets) recognises(r engine.RecordReader) (bool, error) {
	record, err := r.Record(checkKind, contractCheckKey)
	if err != nil || record == nil {
		return false, err
	}
	if !hmac.Equal(record.Body, s.check) {
		return false, ErrContractPepper
	}
	return true, nil
}
