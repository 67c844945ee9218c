package picture

import "encoding/binary"

// maxProfile bounds colour profiles, in bytes; those of cameras and screens have less than a tenth.
const maxProfile = 1 << 20

// The supported colour spaces of profiles, by the names in their headers.
const (
	profileRGB  = "RGB "
	profileGray = "GRAY"
)

// checkProfile returns a profile if it is valid, has exactly the stated length and describes the
// colour space of the variants; otherwise nil. The profile of a CMYK picture is dropped, as its
// variants are RGB. Offsets 16 and 36 of the header of a profile hold its colour space and the
// signature of the format. What follows the header is not read.
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
