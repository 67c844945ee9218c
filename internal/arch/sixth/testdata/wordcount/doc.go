// Package wordcount counts the words of texts. It is the contract that a test adds to the binary, to
// prove that a new contract is one folder and one line.
//
//	POST /wordcount/v1/texts        stores a text
//	GET  /wordcount/v1/texts/{id}   returns its state, and the number of its words
//
//	waiting ──Claimed──▶ counting ──Succeeded──▶ counted
//	   ▲                    │
//	   └─ Expired, Released ┘ ──ExpiredForGood, FailedForGood──▶ lost
//
// It has the files that all contracts have, each as short as it can be, and so is an example of
// them. Package contract says what the fields mean.
package wordcount
