package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compilerDigest is the SHA-256 of the program of the compiler, at the version that package.json
// names: npm takes the word of a registry for what it installs.
const compilerDigest = "e8f349eabd48486bdb2bf9dc1a00c89d58297270c54b745838879e2859194419"

// typescript writes the client for JavaScript and TypeScript: what `npm pack` would write after a
// build. The sources are compiled in a folder of their own, where nothing else is.
func (r *release) typescript() error {
	const dir = "clients/typescript"
	files, err := r.committed(dir)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files = append(files, file{"LICENSE", 0o644, license})
	linkServed(files)
	for _, name := range []string{"package.json", "src/version.ts"} {
		if err := stamp(files, name, "0.0.0-development", r.plainVersion()); err != nil {
			return err
		}
	}
	work := filepath.Join(r.work, "typescript")
	for _, f := range files {
		place := filepath.Join(work, f.name)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(place, f.text, f.mode); err != nil {
			return err
		}
	}
	if err := r.compile(work); err != nil {
		return err
	}
	packed, err := packedFiles(work)
	if err != nil {
		return err
	}
	text, err := r.tarball("package/", packed)
	if err != nil {
		return err
	}
	r.clients = append(r.clients, file{dir + ".tgz", 0o644, text})
	return r.write("millrace-"+r.plainVersion()+".tgz", text)
}

// compile runs the compiler in a folder with a package.
func (r *release) compile(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return err
	}
	var manifest struct{ DevDependencies struct{ TypeScript string } }
	if err := json.Unmarshal(text, &manifest); err != nil {
		return err
	}
	program, err := r.compiler(manifest.DevDependencies.TypeScript)
	if err != nil {
		return err
	}
	c := exec.Command("node", program, "-p", ".")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the client for TypeScript: %w: %s", err, out)
	}
	return nil
}

// compiler returns the program of the compiler, which npm installs where .ci/clients keeps it.
func (r *release) compiler(version string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(r.tools, "typescript-"+version))
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "node_modules", "typescript", "lib", "_tsc.js")
	text, err := os.ReadFile(program)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := r.output("npm", "install", "--silent", "--no-audit", "--no-fund",
			"--ignore-scripts", "--prefix", dir, "typescript@"+version); err != nil {
			return "", err
		}
		text, err = os.ReadFile(program)
	}
	if err != nil {
		return "", err
	}
	if digest := fmt.Sprintf("%x", sha256.Sum256(text)); digest != compilerDigest {
		return "", fmt.Errorf("%s has the checksum %s, not that of compilerDigest", program, digest)
	}
	return program, nil
}

// packedFiles are the files of the package in a folder: those that `files` of its package.json
// names, and the papers that npm adds.
func packedFiles(dir string) (all []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		part, _, _ := strings.Cut(name, "/")
		if !slices.Contains([]string{"LICENSE", "README.md", "dist", "package.json", "src"}, part) {
			return nil
		}
		text, err := os.ReadFile(path)
		all = append(all, file{name, 0o644, text})
		return err
	})
	return all, err
}
