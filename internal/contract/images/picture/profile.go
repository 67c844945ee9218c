package picture

import "encoding/binary"

// maxProfile bounds colour profiles; those of cameras and screens have less than a tenth.
const maxProfile = 1 << 20

// The colour spaces a profile may describe, as profiles name them.
const (
	profileRGB  = "RGB "
	profileGray = "GRAY"
)

// checkProfile returns the profile when it is one, has exactly the length it says and describes the
// colours the variants will have; else nil. A CMYK picture becomes RGB, so its profile, which no
// longer fits, is left behind.
func checkProfile(p []byte, space string) []byte {
	const headerLen = 128
	if len(p) < headerLen || len(p) > maxProfile || int(binary.BigEndian.Uint32(p)) != len(p) {
		return nil
	}
	if string(p[36:40]) != "acsp" || string(p[16:20]) != space {
		return nil
	}
	return p
}
