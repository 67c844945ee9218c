package main

import (
	"fmt"
	"strings"
)

// The README of an archive says what is in it, what to do first, and where the documents are. That
// of the repository is about a build of the source, and links pages that no archive has.

// readme returns the README of the archive of a binary.
func (r *release) readme(b built) []byte {
	first, there := firstServer, thereServer
	if b.os == "windows" {
		first, there = firstWindows, thereWindows
	}
	return []byte(fmt.Sprintf("# Millrace %s for %s\n\n", r.version, b.platform) +
		strings.TrimSpace(about) + "\n\n" + strings.TrimSpace(first) + "\n\n" +
		strings.TrimSpace(there) + "\n\n" + strings.TrimSpace(documents) + "\n")
}

const about = `
Durable jobs over plain HTTP, in one binary: submit work from any language, run it in the server
or in workers anywhere, and receive signed webhooks about it.
`

const firstServer = `
## First

In this folder, or with the binary in a directory of the PATH:

    ./millrace serve

The server keeps its data in the folder millrace-data below the one in which it is started, and
prints where it listens, a link to its console, and the address of its documents:
http://127.0.0.1:8080/docs. In another terminal, in the same folder, submit a job and have cat print
its payload, until Ctrl-C:

    echo '{"to":"ada"}' | ./millrace enqueue --queue mail --timeout 30s
    ./millrace work mail -- cat

A worker of your own in Python, TypeScript or Go is a program to copy from the first page of the
documents, http://127.0.0.1:8080/docs/start. Its client is in the folder clients, and that page has
the one command that gets it from there.

    ./millrace demo clients    # all contracts at work for 20 seconds, on the files of that folder

The settings to know first are listen (127.0.0.1:8080), data_dir (millrace-data) and store (sqlite,
or postgres://...). They are lines of the file millrace.toml in that folder, as listen =
"127.0.0.1:8090", or follow --set; "millrace config" prints all of them.
`

const firstWindows = `
## First

On Windows there are the commands that talk to a server, which runs on Linux or macOS:

    millrace.exe health --server http://the-server:8080
    millrace.exe --help
`

const thereServer = `
## What is here

- millrace: the server and all commands. It needs nothing else.
- clients (of the archive): python, a folder for PYTHONPATH or pip; typescript.tgz, for npm; and go,
  a module for "go work init ./clients/go".
- completions: for bash, zsh and fish; "millrace completion --help" says where shells look for them.
- CHANGELOG.md: what is new. LICENSE: Apache License 2.0.
`

const thereWindows = `
## What is here

- millrace.exe: the commands.
- clients: python, a folder for PYTHONPATH or pip; typescript.tgz, for npm; and go, a module for
  "go work init ./clients/go".
- completions: for PowerShell.
- CHANGELOG.md: what is new. LICENSE: Apache License 2.0.
`

const documents = `
## Documents

A running server has them all at /docs: five minutes for curl, Go, Python and TypeScript, the guide
of each contract, settings, operating, security. The source is at
` + source + `.
`
