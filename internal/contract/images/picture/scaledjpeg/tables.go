package scaledjpeg

// The tables that the standard recommends (Annex K), for luma and chroma.

// standardQuant are the quantizations by row and column.
var standardQuant = [2][64]byte{{
	16, 11, 10, 16, 24, 40, 51, 61,
	12, 12, 14, 19, 26, 58, 60, 55,
	14, 13, 16, 24, 40, 57, 69, 56,
	14, 17, 22, 29, 51, 87, 80, 62,
	18, 22, 37, 56, 68, 109, 103, 77,
	24, 35, 55, 64, 81, 104, 113, 92,
	49, 64, 78, 87, 103, 121, 120, 101,
	72, 92, 95, 98, 112, 100, 103, 99,
}, {
	17, 18, 24, 47, 99, 99, 99, 99,
	18, 21, 26, 66, 99, 99, 99, 99,
	24, 26, 56, 99, 99, 99, 99, 99,
	47, 66, 99, 99, 99, 99, 99, 99,
	99, 99, 99, 99, 99, 99, 99, 99,
	99, 99, 99, 99, 99, 99, 99, 99,
	99, 99, 99, 99, 99, 99, 99, 99,
	99, 99, 99, 99, 99, 99, 99, 99,
}}

// huffmanCode is the number of codes of each length, and the symbols in the order of their codes.
type huffmanCode struct {
	counts  [16]byte
	symbols []byte
}

// standardHuffman are the codes of DC and AC coefficients.
var standardHuffman = [2][2]huffmanCode{{
	{[16]byte{0, 1, 5, 1, 1, 1, 1, 1, 1}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	{[16]byte{0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125}, withRest(
		0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
		0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52,
		0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82)},
}, {
	{[16]byte{0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	{[16]byte{0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119}, withRest(
		0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
		0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33,
		0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1)},
}}

// withRest appends the other symbols of AC coefficients, which have the longest codes, in ascending
// order: up to 15 zeros, and a value of 1 to 10 bits.
func withRest(symbols ...byte) []byte {
	var listed [256]bool
	for _, s := range symbols {
		listed[s] = true
	}
	for zeros := range byte(16) {
		for n := byte(1); n <= 10; n++ {
			if s := zeros<<4 | n; !listed[s] {
				symbols = append(symbols, s)
			}
		}
	}
	return symbols
}

// codeTable has the code of each symbol, and below it in five bits its length.
type codeTable [256]uint32

// standardCodes are the codes of standardHuffman.
var standardCodes = [2][2]codeTable{
	{standardHuffman[0][0].codes(), standardHuffman[0][1].codes()},
	{standardHuffman[1][0].codes(), standardHuffman[1][1].codes()},
}

func (h *huffmanCode) codes() (t codeTable) {
	code, index := uint32(0), 0
	for i, count := range h.counts {
		code <<= 1
		for range count {
			t[h.symbols[index]] = code<<5 | uint32(i+1)
			code++
			index++
		}
	}
	return t
}
