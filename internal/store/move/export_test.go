package move

// Keys returns the tables that are moved, with their keys.
func Keys() map[string][]string {
	keys := map[string][]string{}
	for _, t := range tables {
		keys[t.name] = t.key
	}
	return keys
}

// OwnColumns are the columns that one kind of database alone has.
var OwnColumns = ownColumns

// Numbered are the tables that give their rows numbers.
var Numbered = numbered

// MaxBatchRows is how many rows a batch has at most.
const MaxBatchRows = maxBatchRows
