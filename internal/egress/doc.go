// Package egress makes the requests that leave this program: every HTTP request to an address that
// a user or another server named goes through a Client, so that none of them reaches a private
// address (server-side request forgery).
//
// What a host name, or a number in an unusual spelling, leads to is known only when a connection is
// made. That is where the guard checks the address, the one the kernel is about to connect to:
//
//	ParseURL ─> Client.Do ─> resolve ─> guard.control(address) ─> connect
//	              ▲                          │ not public: RefusedError
//	              └── each redirect again ───┘
//
// So a name that resolves differently the second time, 0x7f.1, or a redirect cannot get past it.
//
// Addresses that are not public are refused; classes lists them. AllowLocal permits loopback and
// private addresses: a node sets it while all its own listeners are on loopback, as on a
// developer's machine. Allow lists the prefixes that an operator permits in addition.
//
// Through a proxy of the operator the same holds as far as the proxy can be given an address; see
// proxyTransport.
//
// Proxies of the environment are ignored, compressed answers are neither requested nor decoded, and
// header, handshake and connection are bounded in time and size. The caller bounds the body of the
// answer.
package egress
