// Package strictjson reads and writes JSON text where encoding/json is too lax or too slow for the
// contracts.
//
// encoding/json accepts invalid UTF-8, nests to 10,000 levels, matches member names whatever their
// case, turns lone surrogates silently into U+FFFD and reads numbers through floating point. Here
// (G-X-15, G-RL-26, G-RL-27):
//
//	body → Check → Members / Elements → String, Int, Bool, Time → the contract's own rules
//
// Check is the only function that validates text. It is called once, on the whole body; the depth
// limit counts from there. All other functions rely on checked text and scan sub-slices of it
// without copying: payloads come out byte for byte as they were sent (G-RL-12). Given text that
// was not checked, they neither panic nor loop, but their results are meaningless.
//
// All functions that take raw accept white space around the value. Errors of single values say what
// is wrong, not where: the contract knows the member's name and the status that goes with it.
package strictjson
