package scaledjpeg

// lookupBits is the length of codes that are found by one look into a table.
const lookupBits = 9

// table is a Huffman table. The zero table has no codes.
type table struct {
	// lookup has an entry for all bits that a code may begin with; 0 for a longer code or none:
	//
	//	bits 0–4     the length of the code, with the bits of the value if the entry has it
	//	bit 7        the entry has the value: code and value have at most lookupBits bits
	//	bits 8–15    the symbol
	//	bits 16–31   the value, signed
	lookup [1 << lookupBits]uint32
	// limit is, for each length of a code, the first 16 bits that are beyond the codes of that
	// length or shorter ones.
	limit [17]uint32
	// offset plus a code is the index of its symbol.
	offset  [17]int32
	symbols [256]byte
}

// hasValue is the bit of an entry that has a value.
const hasValue = 1 << 7

// newTable makes a table from the number of codes of each length, 1 to 16, and the symbols in the
// order of their codes. If withValues, the low half of a symbol is the number of bits of a value
// that follows the code. More codes than there are of a length are ErrUnusual: what image/jpeg
// makes of them depends on the way it looks for codes.
func newTable(counts *[16]byte, symbols []byte, withValues bool) (*table, error) {
	t := &table{}
	copy(t.symbols[:], symbols)
	code, index := uint32(0), int32(0)
	for i, count := range counts {
		length := i + 1
		code <<= 1
		t.offset[length] = index - int32(code)
		for range count {
			if code >= 1<<length {
				return nil, ErrUnusual
			}
			if length <= lookupBits {
				t.addCode(code, length, symbols[index], withValues)
			}
			code++
			index++
		}
		t.limit[length] = code << (16 - length)
	}
	return t, nil
}

// addCode makes the entries of a code for all bits that may follow it.
func (t *table) addCode(code uint32, length int, symbol byte, withValues bool) {
	rest := lookupBits - length
	for following := range uint32(1) << rest {
		entry := uint32(symbol)<<8 | uint32(length)
		if n := int(symbol & 15); withValues && n > 0 && n <= rest {
			value := extend(int32(following>>(rest-n)), n)
			entry = uint32(value)<<16 | uint32(symbol)<<8 | hasValue | uint32(length+n)
		}
		t.lookup[code<<rest|following] = entry
	}
}

// find returns the symbol that the highest bits stand for, and the length of its code; 0 if there
// is no such code.
func (t *table) find(bits uint64) (symbol byte, length int) {
	entry := t.lookup[bits>>(64-lookupBits)]
	if entry != 0 && entry&hasValue == 0 {
		return byte(entry >> 8), int(entry & 31)
	}
	first := uint32(bits >> 48)
	for n := 1; n <= 16; n++ {
		if first < t.limit[n] {
			return t.symbols[byte(t.offset[n]+int32(first>>(16-n)))], n
		}
	}
	return 0, 0
}
