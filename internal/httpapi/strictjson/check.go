package strictjson

import (
	"strconv"
	"unicode/utf8"
)

// MaxDepth is how many arrays and objects may stand inside each other, the outermost included.
const MaxDepth = 512

// SyntaxError says why a text is not JSON. Offset counts bytes from the start of the text.
type SyntaxError struct {
	Offset int64
	Msg    string
}

// Error implements error. The contracts send the text to their callers, so it repeats no more of
// the input than one character.
func (e *SyntaxError) Error() string {
	return e.Msg + " at byte " + strconv.FormatInt(e.Offset, 10)
}

// IsValid reports whether Check has no error.
func IsValid(data []byte) bool { return Check(data) == nil }

// Check returns nil when data is one JSON value (RFC 8259) in valid UTF-8 with nothing but white
// space around it, nested no deeper than MaxDepth; otherwise a *SyntaxError for the first error
// (G-X-15, G-RL-26). A byte order mark is refused. The grammar allows lone surrogates as escapes,
// so Check does too; String reports them.
//
// Check takes linear time, does not recurse and allocates only the error.
func Check(data []byte) error {
	c := checker{data: data}
	for {
		opened, err := c.begin()
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		done, err := c.end()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// checker reads a text value by value. Two steps alternate: begin reads a scalar or opens a
// container, end reads what may follow a complete value. The open containers take one bit per
// level, so the whole state fits on the stack.
//
//	begin ──a scalar, an empty container──> end ──comma────────> begin
//	begin ──another container─────────────> begin
//	                                        end ──end of text──> done
type checker struct {
	data    []byte
	pos     int
	depth   int
	objects [MaxDepth / 64]uint64 // bit n: the container at depth n+1 is an object
}

// begin reads the value at pos. opened reports that it entered a container, whose first value comes
// next.
func (c *checker) begin() (opened bool, err error) {
	c.pos = skipSpace(c.data, c.pos)
	if c.pos >= len(c.data) {
		return false, c.unexpected()
	}
	switch ch := c.data[c.pos]; {
	case ch == '"':
		return false, c.stringValue()
	case ch == '{' || ch == '[':
		return c.open(ch)
	case ch == '-' || isDigit(ch):
		return false, c.number()
	case ch == 't':
		return false, c.literal("true")
	case ch == 'f':
		return false, c.literal("false")
	case ch == 'n':
		return false, c.literal("null")
	}
	return false, c.unexpected()
}

// open enters a container and, in an object, reads the first name. It reads an empty container to
// its end.
func (c *checker) open(ch byte) (opened bool, err error) {
	if c.depth == MaxDepth {
		return false, c.fail("nested deeper than " + strconv.Itoa(MaxDepth))
	}
	word, bit := &c.objects[c.depth/64], uint64(1)<<(c.depth%64)
	c.depth++
	c.pos = skipSpace(c.data, c.pos+1)
	if ch == '[' {
		*word &^= bit
		if c.atChar(']') {
			c.close()
			return false, nil
		}
		return true, nil
	}
	*word |= bit
	if c.atChar('}') {
		c.close()
		return false, nil
	}
	return true, c.name()
}

// end reads what follows a complete value: closing brackets and then a comma, with the next name in
// an object. done reports the end of the text.
func (c *checker) end() (done bool, err error) {
	for {
		c.pos = skipSpace(c.data, c.pos)
		if c.depth == 0 {
			if c.pos < len(c.data) {
				return false, c.trailing()
			}
			return true, nil
		}
		inObject := c.objects[(c.depth-1)/64]>>((c.depth-1)%64)&1 == 1
		switch {
		case c.atChar(',') && inObject:
			c.pos = skipSpace(c.data, c.pos+1)
			return false, c.name()
		case c.atChar(','):
			c.pos++
			return false, nil
		case c.atChar('}') && inObject, c.atChar(']') && !inObject:
			c.close()
		default:
			return false, c.unexpected()
		}
	}
}

// close leaves the innermost container, whose closing bracket is at pos.
func (c *checker) close() {
	c.pos++
	c.depth--
}

// name reads the name of a member and the colon after it.
func (c *checker) name() error {
	if !c.atChar('"') {
		return c.unexpected()
	}
	if err := c.stringValue(); err != nil {
		return err
	}
	c.pos = skipSpace(c.data, c.pos)
	if !c.atChar(':') {
		return c.unexpected()
	}
	c.pos++
	return nil
}

// stringValue reads the string whose opening quote is at pos. The fast path is a run of plain
// characters; all other bytes are looked at one by one.
func (c *checker) stringValue() error {
	data, i := c.data, c.pos+1
	for i < len(data) {
		ch := data[i]
		switch {
		case plainChars[ch]:
			i++
		case ch == '"':
			c.pos = i + 1
			return nil
		case ch == '\\':
			c.pos = i
			if err := c.escape(); err != nil {
				return err
			}
			i = c.pos
		case ch >= utf8.RuneSelf:
			_, size := utf8.DecodeRune(data[i:])
			if size == 1 {
				c.pos = i
				return c.unexpected()
			}
			i += size
		default: // a control character, which must be escaped
			c.pos = i
			return c.unexpected()
		}
	}
	c.pos = i
	return c.unexpected()
}

// escape reads the escape whose backslash is at pos. A lone surrogate passes: the grammar allows
// it, and String refuses it where a text is needed.
func (c *checker) escape() error {
	c.pos++
	if c.pos >= len(c.data) {
		return c.unexpected()
	}
	switch c.data[c.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.pos++
		return nil
	case 'u':
		c.pos++
		for range 4 {
			if c.pos >= len(c.data) || hexValue[c.data[c.pos]] < 0 {
				return c.unexpected()
			}
			c.pos++
		}
		return nil
	}
	return c.unexpected()
}

// number reads -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func (c *checker) number() error {
	if c.atChar('-') {
		c.pos++
	}
	if c.atChar('0') {
		c.pos++
	} else if err := c.digits(); err != nil {
		return err
	}
	if c.atChar('.') {
		c.pos++
		if err := c.digits(); err != nil {
			return err
		}
	}
	if c.atChar('e') || c.atChar('E') {
		c.pos++
		if c.atChar('+') || c.atChar('-') {
			c.pos++
		}
		return c.digits()
	}
	return nil
}

// digits reads one digit or more.
func (c *checker) digits() error {
	i := c.pos
	for i < len(c.data) && isDigit(c.data[i]) {
		i++
	}
	if i == c.pos {
		return c.unexpected()
	}
	c.pos = i
	return nil
}

// literal reads a word of JSON whose first character is at pos.
func (c *checker) literal(word string) error {
	for i := range len(word) {
		if !c.atChar(word[i]) {
			return c.unexpected()
		}
		c.pos++
	}
	return nil
}

// atChar reports whether a character is at pos.
func (c *checker) atChar(ch byte) bool { return c.pos < len(c.data) && c.data[c.pos] == ch }

// fail is the error at pos.
func (c *checker) fail(msg string) *SyntaxError {
	return &SyntaxError{Offset: int64(c.pos), Msg: msg}
}

// unexpected is the error for the character at pos.
func (c *checker) unexpected() *SyntaxError {
	if c.pos >= len(c.data) {
		return c.fail("unexpected end of input")
	}
	r, size := utf8.DecodeRune(c.data[c.pos:])
	if r == utf8.RuneError && size == 1 {
		return c.fail("invalid UTF-8")
	}
	return c.fail("unexpected character " + strconv.QuoteRune(r))
}

// trailing is the error for text after the value.
func (c *checker) trailing() *SyntaxError {
	if r, size := utf8.DecodeRune(c.data[c.pos:]); r == utf8.RuneError && size == 1 {
		return c.fail("invalid UTF-8")
	}
	return c.fail("trailing data")
}

// isDigit reports whether a byte is a decimal digit. JSON knows no others.
func isDigit(ch byte) bool { return '0' <= ch && ch <= '9' }

// plainChars marks the bytes that stand for themselves in a string: ASCII without control
// characters, quote and backslash.
var plainChars = func() (table [256]bool) {
	for ch := 0x20; ch < utf8.RuneSelf; ch++ {
		table[ch] = ch != '"' && ch != '\\'
	}
	return table
}()

// hexValue is the value of a hexadecimal digit, -1 for any other byte.
var hexValue = func() (table [256]int8) {
	for ch := range table {
		switch {
		case '0' <= ch && ch <= '9':
			table[ch] = int8(ch - '0')
		case 'a' <= ch && ch <= 'f':
			table[ch] = int8(ch - 'a' + 10)
		case 'A' <= ch && ch <= 'F':
			table[ch] = int8(ch - 'A' + 10)
		default:
			table[ch] = -1
		}
	}
	return table
}()
