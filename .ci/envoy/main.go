// Command envoy checks the configuration of Envoy in docs/proxies.md against Envoy's own
// definitions: members that do not exist, values of the wrong type, and values that Envoy refuses
// when it starts. Envoy itself is not run; TestBehindEnvoy does that where it is installed.
//
// It is a module of its own, as these definitions are many.
//
//	page ──▶ YAML block ──▶ JSON ──▶ bootstrap.Bootstrap ──▶ ValidateAll of every message
//
// The blank imports register the messages that the configuration holds as Any.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"gopkg.in/yaml.v3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: envoy PAGE")
		os.Exit(2)
	}
	if err := checkPage(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("the configuration of Envoy is valid")
}

// checkPage checks the configuration in the first YAML block of a page. A page without one is an
// error: a block that was moved or renamed must not pass unchecked.
func checkPage(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		return errors.New(path + " has no configuration of Envoy")
	}
	return check(block)
}

// check checks a configuration. It goes through JSON because protojson refuses unknown members and
// values of the wrong type.
func check(text string) error {
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		return err
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	var config bootstrap.Bootstrap
	if err := protojson.Unmarshal(asJSON, &config); err != nil {
		return err
	}
	return validate(&config)
}

// validate applies the rules of a message and of those that it holds as Any, at any depth. The
// generated ValidateAll covers the message and its members, but not what is packed in an Any. It
// returns the first error.
func validate(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err
		}
	}
	return protorange.Range(m.ProtoReflect(), func(values protopath.Values) error {
		value, ok := values.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		packed, ok := value.Interface().(*anypb.Any)
		if !ok {
			return nil
		}
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return err
		}
		return validate(inner)
	})
}
