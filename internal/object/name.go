package object

import "github.com/millrace/millrace/internal/object/name"

// ValidKey tells whether a text can be an object's key.
func ValidKey(key string) bool { return name.ValidKey(key) }

// ValidBucket tells whether a text can be a bucket's name.
func ValidBucket(bucket string) bool { return name.ValidBucket(bucket) }

const sidecar = name.Sidecar
