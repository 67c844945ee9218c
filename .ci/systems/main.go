// Command systems checks that Millrace compiles for systems of which no machine runs the tests: the
// server for macOS, and the commands that need a server elsewhere for Windows. It checks the types
// of its packages, and of all that they import, without compiling a thousand packages twice.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/tools/go/packages"
)

const program = "github.com/millrace/millrace/cmd/millrace"

func main() {
	failed := false
	for _, system := range []string{"darwin/arm64", "windows/amd64"} {
		if err := check(system); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", system, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check checks the program for a system, with the function bodies of its own packages.
func check(system string) error {
	goos, goarch, _ := strings.Cut(system, "/")
	const root = "../.."
	env := append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	own, err := ownPackages(root, env)
	if err != nil {
		return err
	}
	all, err := packages.Load(&packages.Config{Dir: root, Env: env, Mode: packages.NeedName |
		packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
		packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax |
		packages.NeedTypesInfo}, own...)
	if err != nil {
		return err
	}
	if n := packages.PrintErrors(all); n > 0 {
		return fmt.Errorf("%d errors", n)
	}
	fmt.Printf("%s: %d packages\n", system, len(all))
	return nil
}

// ownPackages returns the packages of Millrace that the program is made of.
func ownPackages(root string, env []string) ([]string, error) {
	c := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}"+
		"{{end}}{{end}}", program)
	var stderr bytes.Buffer
	c.Dir, c.Env, c.Stderr = root, env, &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &stderr)
	}
	own := strings.Fields(string(out))
	if len(own) == 0 {
		return nil, fmt.Errorf("%s has no packages", program)
	}
	return own, nil
}
