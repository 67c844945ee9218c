package strictjson

import "iter"

// Members iterates over the members of a checked object in the order they were sent: the decoded
// name and the raw value without the white space around it. Anything but an object has no members.
//
// Names are compared by the caller and in their exact case. A name sent twice comes twice; for the
// last one to win (G-X-15) the caller assigns. Both slices are parts of raw (a name with escapes is
// a copy) and are good as long as raw is; `switch string(name)` does not allocate. A lone surrogate
// in a name comes as U+FFFD: see RawMembers.
func Members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		walkObject(raw, func(quoted, value []byte) bool {
			return yield(unquote(quoted), value)
		})
	}
}

// RawMembers is Members with the name as the JSON string it was sent as, for objects whose names
// are the user's own: String decodes it and reports what the name cannot hold.
func RawMembers(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(quoted, value []byte) bool) { walkObject(raw, yield) }
}

// Elements iterates over the elements of a checked array: their index and the raw value without the
// white space around it, a part of raw. Anything but an array has no elements.
func Elements(raw []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		i := skipSpace(raw, 0)
		if i >= len(raw) || raw[i] != '[' {
			return
		}
		for n := 0; ; n++ {
			start := skipSpace(raw, i+1)
			end := skipValue(raw, start)
			if end == start || !yield(n, raw[start:end:end]) {
				return
			}
			i = skipSpace(raw, end)
			if i >= len(raw) || raw[i] != ',' {
				return
			}
		}
	}
}

// Trim returns raw without the white space of JSON around it. What is left of a body of white space
// is empty (G-RL-25).
func Trim(raw []byte) []byte {
	start, end := skipSpace(raw, 0), len(raw)
	for end > start && isSpace(raw[end-1]) {
		end--
	}
	return raw[start:end:end]
}

func walkObject(raw []byte, yield func(quoted, value []byte) bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return
	}
	for {
		name := skipSpace(raw, i+1)
		if name >= len(raw) || raw[name] != '"' {
			return
		}
		nameEnd := skipString(raw, name)
		start := skipSpace(raw, skipSpace(raw, nameEnd)+1) // past the colon
		end := skipValue(raw, start)
		if end == start || !yield(raw[name:nameEnd:nameEnd], raw[start:end:end]) {
			return
		}
		i = skipSpace(raw, end)
		if i >= len(raw) || raw[i] != ',' {
			return
		}
	}
}

// skipValue returns the end of the checked value that starts at i; i itself when none does.
func skipValue(raw []byte, i int) int {
	if i >= len(raw) {
		return i
	}
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		return skipContainer(raw, i)
	}
	for i < len(raw) && !endsScalar[raw[i]] {
		i++
	}
	return i
}

// skipContainer counts brackets. In checked text they match, so their kinds need no look.
func skipContainer(raw []byte, i int) int {
	for depth := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			break
		}
	}
	return i
}

// skipString returns the position after the closing quote of the string whose opening quote is at
// i.
func skipString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(raw)
}

// skipSpace returns the position of the first byte from i on that is no white space. i may lie past
// the end.
func skipSpace(raw []byte, i int) int {
	for i < len(raw) && isSpace(raw[i]) {
		i++
	}
	return min(i, len(raw))
}

func isSpace(ch byte) bool {
	return ch <= ' ' && (ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t')
}

// endsScalar holds what ends a number, true, false or null.
var endsScalar = [256]bool{' ': true, '\n': true, '\r': true, '\t': true, ',': true, ']': true,
	'}': true}
