package strictjson

import "iter"

// Members iterates over the members of a checked object in the order they were sent: the decoded
// name and the raw value without the white space around it. Anything but an object has no members.
//
// The caller compares names, in their exact case. A name that was sent twice is yielded twice; the
// last one wins (G-X-15) when the caller simply assigns. Both slices are parts of raw (a name with
// escapes is a copy) and are valid as long as raw is; `switch string(name)` does not allocate. A
// lone surrogate in a name is yielded as U+FFFD; RawMembers reports it. Deep values are skipped and
// not parsed, so reading the few members that a contract knows costs one scan of the text.
func Members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		walkObject(raw, func(quoted, value []byte) bool {
			return yield(unquote(quoted), value)
		})
	}
}

// RawMembers is Members with each name as a raw JSON string, for objects whose names the user
// chooses: String decodes it and reports lone surrogates and U+0000.
func RawMembers(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(quoted, value []byte) bool) { walkObject(raw, yield) }
}

// Elements iterates over the elements of a checked array: the index and the raw value, a part of
// raw without the white space around it. Anything but an array has no elements.
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

// Trim returns raw without the white space around it. A body of white space alone becomes empty
// (G-RL-25).
func Trim(raw []byte) []byte {
	start, end := skipSpace(raw, 0), len(raw)
	for end > start && isSpace(raw[end-1]) {
		end--
	}
	return raw[start:end:end]
}

// walkObject yields the quoted name and the raw value of each member of a checked object.
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

// skipValue returns the end of the checked value that starts at i, or i when there is none.
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

// skipContainer returns the end of the container that starts at i. It only counts brackets: in
// checked text they match.
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

// skipSpace returns the position of the first byte from i on that is not white space. i may lie
// beyond the end.
func skipSpace(raw []byte, i int) int {
	for i < len(raw) && isSpace(raw[i]) {
		i++
	}
	return min(i, len(raw))
}

// isSpace reports whether a byte is white space of JSON; Unicode's other spaces are not.
func isSpace(ch byte) bool {
	return ch <= ' ' && (ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t')
}

// endsScalar marks the bytes that end a number, true, false or null.
var endsScalar = [256]bool{' ': true, '\n': true, '\r': true, '\t': true, ',': true, ']': true,
	'}': true}
