// Command child is the child alone: small, and without the race detector, whose own memory the
// limits would count.
package main

import (
	"os"

	"github.com/millrace/millrace/internal/contract/images/picture"
)

func main() { os.Exit(picture.Child(os.Stdin, os.Stdout, os.Args[1:])) }
