package main

import (
	"bytes"
	"text/template"
)

// source is where a release is downloaded from.
const source = "https://github.com/millrace/millrace"

// formula is the Homebrew formula. It has no tabs, as Ruby is written without.
var formula = template.Must(template.New("").Parse(`class Millrace < Formula
  desc "Self-hosted job platform in one binary"
  homepage "{{.Source}}"
  version "{{.Version}}"
  license "Apache-2.0"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Archives}}
    on_{{.CPU}} do
      url "{{$.Source}}/releases/download/v{{$.Version}}/{{.Name}}"
      sha256 "{{.Digest}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "millrace"
    bash_completion.install "completions/millrace.bash" => "millrace"
    zsh_completion.install "completions/_millrace"
    fish_completion.install "completions/millrace.fish"
  end

  service do
    run [opt_bin/"millrace", "serve"]
    environment_variables MILLRACE__DATA_DIR: var/"millrace"
    keep_alive successful_exit: false
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/millrace version")
  end
end
`))

// system is the part of the formula for an operating system.
type system struct {
	Name     string
	Archives []archived
}

type archived struct{ CPU, Name, Digest string }

// brewNames are the words of Homebrew for what Go calls otherwise.
var brewNames = map[string]string{"darwin": "macos", "linux": "linux", "amd64": "intel",
	"arm64": "arm"}

// writeFormula writes the formula of the archives for macOS and Linux.
func (r *release) writeFormula() error {
	var systems []system
	for _, name := range []string{"darwin", "linux"} {
		s := system{Name: brewNames[name]}
		for _, b := range r.built {
			if b.os != name {
				continue
			}
			digest, err := r.digest(r.packed[b.platform])
			if err != nil {
				return err
			}
			s.Archives = append(s.Archives,
				archived{brewNames[b.arch], r.packed[b.platform], digest})
		}
		if len(s.Archives) > 0 {
			systems = append(systems, s)
		}
	}
	var text bytes.Buffer
	err := formula.Execute(&text, map[string]any{"Source": source, "Version": r.plainVersion(),
		"Systems": systems})
	if err != nil {
		return err
	}
	return r.write("millrace.rb", text.Bytes())
}
