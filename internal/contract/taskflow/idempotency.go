package taskflow

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

const (
	keyHeader         = "Idempotency-Key"
	maxIdempotencyKey = 255 // characters

	// idempotencyKind is the kind of the records of keys.
	idempotencyKind = "taskflow.idempotency"
)

// idempotencyOf reads the Idempotency-Key of a create or a graph, which may come again and makes
// its jobs once (RT-002); an empty header counts as none. Requests are the same if they have the
// same path and body. A record keeps the key: the answer about a graph has the ids of all its jobs.
func (t *TaskFlow) idempotencyOf(c *httpapi.Call, body []byte) (engine.Idempotency, error) {
	given := c.Request.Header[keyHeader]
	if len(given) > 1 {
		return engine.Idempotency{}, invalid(keyHeader + " is given twice")
	}
	if len(given) == 0 || given[0] == "" {
		return engine.Idempotency{}, nil
	}
	key := given[0]
	if utf8.RuneCountInString(key) > maxIdempotencyKey || !utf8.ValidString(key) {
		return engine.Idempotency{}, invalid(keyHeader+" must have 1 to %d characters", maxIdempotencyKey)
	}
	digest := sha256.New()
	digest.Write([]byte(c.Request.URL.Path + "\n"))
	digest.Write(strictjson.Trim(body))
	name := sha256.Sum256([]byte(key)) // a key of 255 characters is too long for an index
	return engine.Idempotency{Record: &engine.IdempotencyRecord{Kind: idempotencyKind,
		Key:    hex.EncodeToString(name[:]),
		Window: t.IdempotencyWindow,
		Digest: hex.EncodeToString(digest.Sum(nil))}}, nil
}
