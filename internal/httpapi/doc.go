// Package httpapi is what all contracts share of HTTP. It knows no contract.
//
// A contract is a Table: its routes, its body limit, its token, and the one
// function that writes all its errors. Table.Mount makes a Mount of it, and
// Root puts the mounts of a listener side by side.
//
//	Root → Table: token → route → body limit → Handler → error? Answer
//
// Paths are matched as they were sent, escaped, and their members decoded once
// afterwards: nothing is cleaned and nothing redirected, so "%2F" and "%2E%2E"
// stay part of the member they stand in. An empty member matches nothing.
//
// Handlers return errors. Whatever goes wrong inside a mount, an unknown path
// and a panic included, is answered by that mount's Answer and logged there,
// once. A request that went well is one line at debug level.
package httpapi
