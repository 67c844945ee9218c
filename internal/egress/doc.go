// Package egress is the only way out: every HTTP request this program makes to an address somebody
// else named goes through a Client.
//
// What a name or an odd spelling of a number leads to is known only when a connection is made, so
// that is where the guard stands: it sees the address the kernel is about to be given. A name that
// resolves differently the second time, 0x7f.1, or a redirect gains nothing by it.
//
// Refused is whatever is not public, see classes. Local lets a developer's machine call itself and
// its network: it is set while every listener is on loopback. Allow lists what an operator lets
// through besides.
//
// Through a proxy of the operator's the same holds as far as the proxy can be told an address: see
// proxyTransport.
//
// The environment names no proxies here, compressed answers are neither asked for nor unpacked, and
// header, handshake and connection are bounded in time and size. The body of an answer is the
// caller's to bound.
package egress
