package live

// table keeps values by key, each with the reading in which it has changed last.
type table[K comparable, V any] struct {
	rows map[K]row[V]
	same func(a, b V) bool
}

type row[V any] struct {
	value   V
	reading uint64
}

func newTable[K comparable, V any](same func(a, b V) bool) table[K, V] {
	return table[K, V]{map[K]row[V]{}, same}
}

// set sets the value of a key in a reading and reports whether it is another than before.
func (t *table[K, V]) set(key K, value V, reading uint64) bool {
	if old, known := t.rows[key]; known && t.same(old.value, value) {
		return false
	}
	t.rows[key] = row[V]{value, reading}
	return true
}

// since returns the values that have changed after a reading, in no order.
func (t *table[K, V]) since(reading uint64) (changed []V) {
	for _, r := range t.rows {
		if r.reading > reading {
			changed = append(changed, r.value)
		}
	}
	return changed
}
