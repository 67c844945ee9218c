package main

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptPictures is `pictures`: those of the demo, by their names.
func scriptPictures(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: pictures")
	}
	pictures, err := drawPictures()
	ts.Check(err)
	for _, p := range pictures {
		ts.Check(os.WriteFile(ts.MkAbs(p.name), p.data, 0o600))
	}
}
