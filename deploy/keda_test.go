package deploy

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kedaMembers are the members of a ScaledObject, their types, whether each is required of its
// object, and the least value of a number: facts of the schema that KEDA 2.20.2 installs,
// config/crd/bases/keda.sh_scaledobjects.yaml of its repository. Its own types would bring the
// modules of all clouds. [] is each element of a list; what is "any" is of Kubernetes.
const kedaMembers = `
apiVersion string
kind string
metadata any
spec object required
spec.advanced object
spec.advanced.horizontalPodAutoscalerConfig object
spec.advanced.horizontalPodAutoscalerConfig.behavior any
spec.advanced.horizontalPodAutoscalerConfig.name string
spec.advanced.restoreToOriginalReplicaCount boolean
spec.advanced.scalingModifiers object
spec.advanced.scalingModifiers.activationTarget string
spec.advanced.scalingModifiers.formula string
spec.advanced.scalingModifiers.metricType string
spec.advanced.scalingModifiers.target string
spec.cooldownPeriod integer 0
spec.fallback object
spec.fallback.behavior string
spec.fallback.failureThreshold integer required 0
spec.fallback.replicas integer required 0
spec.idleReplicaCount integer 0
spec.initialCooldownPeriod integer 0
spec.maxReplicaCount integer 1
spec.minReplicaCount integer 0
spec.pollingInterval integer 1
spec.scaleTargetRef object required
spec.scaleTargetRef.apiVersion string
spec.scaleTargetRef.envSourceContainerName string
spec.scaleTargetRef.kind string
spec.scaleTargetRef.name string required
spec.triggers list required
spec.triggers[] object
spec.triggers[].authenticationRef object
spec.triggers[].authenticationRef.kind string
spec.triggers[].authenticationRef.name string required
spec.triggers[].metadata strings required
spec.triggers[].metricType string
spec.triggers[].name string
spec.triggers[].type string required
spec.triggers[].useCachedMetrics boolean
`

// kedaPrometheus are the members that a trigger of the type prometheus has in its metadata, and
// whether it is refused without them, but those for authentication: facts of the same version,
// pkg/scalers/prometheus_scaler.go.
var kedaPrometheus = map[string]bool{"serverAddress": true, "query": true, "threshold": true,
	"queryParameters": false, "activationThreshold": false, "namespace": false,
	"customHeaders": false, "ignoreNullValues": false, "unsafeSsl": false, "timeout": false}

// kedaMember is a line of kedaMembers.
type kedaMember struct {
	kind     string
	required bool
	least    float64
}

// kedaSchema returns the lines of kedaMembers by their paths. The path of the whole object is "".
func kedaSchema(t *testing.T) map[string]kedaMember {
	t.Helper()
	schema := map[string]kedaMember{"": {kind: "object"}}
	for line := range strings.Lines(strings.TrimSpace(kedaMembers)) {
		words := strings.Fields(line)
		m := kedaMember{kind: words[1], required: slices.Contains(words, "required")}
		if m.kind == "integer" {
			least, err := strconv.ParseFloat(words[len(words)-1], 64)
			if err != nil {
				t.Fatal(line, err)
			}
			m.least = least
		}
		schema[words[0]] = m
	}
	return schema
}

// kindOf returns the type of a value of JSON, as kedaMembers calls it.
func kindOf(value any) string {
	switch v := value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "list"
	case map[string]any:
		if slices.ContainsFunc(slices.Collect(maps.Values(v)), func(member any) bool {
			return kindOf(member) != "string"
		}) {
			return "object"
		}
		return "strings"
	}
	return "null"
}

// kedaProblems says what a schema refuses of a value at a path.
func kedaProblems(schema map[string]kedaMember, path string, value any) (problems []string) {
	m, got := schema[path], kindOf(value)
	if (m.kind == "object") && (got == "strings") {
		got = "object"
	}
	if (m.kind != "any") && (m.kind != got) {
		return []string{path + " is of the type " + got}
	}
	switch got {
	case "integer":
		if number, ok := value.(float64); ok && (number < m.least) {
			problems = append(problems, fmt.Sprintf("%s is less than %v", path, m.least))
		}
	case "list":
		elements, _ := value.([]any)
		for _, element := range elements {
			problems = append(problems, kedaProblems(schema, path+"[]", element)...)
		}
	case "object":
		object, _ := value.(map[string]any)
		problems = kedaObjectProblems(schema, strings.TrimPrefix(path+".", "."), object)
	}
	return problems
}

// kedaObjectProblems is kedaProblems for the members of an object, whose paths have a prefix.
func kedaObjectProblems(schema map[string]kedaMember, prefix string,
	object map[string]any) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch m, known := schema[prefix+name]; {
		case !known:
			problems = append(problems, "there is no "+prefix+name)
		case m.kind != "any":
			problems = append(problems, kedaProblems(schema, prefix+name, object[name])...)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(schema)) {
		member, isWithin := strings.CutPrefix(path, prefix)
		if isWithin && schema[path].required && !strings.ContainsAny(member, ".[") &&
			(object[member] == nil) {
			problems = append(problems, path+" is missing")
		}
	}
	return problems
}

// scaledObjectProblems says what KEDA refuses of a ScaledObject: by its schema, by the check of its
// webhook on the numbers of pods, and in the metadata of triggers of the type prometheus.
func scaledObjectProblems(t *testing.T, text string) []string {
	t.Helper()
	var object map[string]any
	mustDecode(t, text, &object)
	problems := kedaProblems(kedaSchema(t), "", object)
	if problems != nil {
		return problems
	}
	var known scaledObject
	mustDecode(t, text, &known)
	if got := known.APIVersion + " " + known.Kind; got != "keda.sh/v1alpha1 ScaledObject" {
		problems = append(problems, "KEDA has no "+got)
	}
	if known.Spec.MinReplicaCount > known.Spec.MaxReplicaCount {
		problems = append(problems, "the least number of pods is above the greatest")
	}
	for _, trigger := range known.Spec.Triggers {
		if trigger.Type != "prometheus" {
			problems = append(problems, "the check does not know triggers of the type "+trigger.Type)
		}
		problems = append(problems, prometheusProblems(trigger.Metadata)...)
	}
	return problems
}

// prometheusProblems says what KEDA refuses of the metadata of a trigger of the type prometheus.
func prometheusProblems(metadata map[string]string) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if _, known := kedaPrometheus[name]; !known {
			problems = append(problems, "the trigger has no "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kedaPrometheus)) {
		if kedaPrometheus[name] && (metadata[name] == "") {
			problems = append(problems, "the trigger misses "+name)
		}
	}
	threshold, err := strconv.ParseFloat(metadata["threshold"], 64)
	if (err != nil) || (threshold <= 0) {
		problems = append(problems, "the threshold is no number above 0")
	}
	server, err := url.Parse(metadata["serverAddress"])
	if (err != nil) || (server.Host == "") {
		problems = append(problems, "the address of Prometheus is no URL")
	}
	return problems
}

// TestAutoscaling: KEDA takes autoscaling.yaml, and nothing else sets the number of pods. The check
// finds what KEDA would refuse. TestPrometheusOfCompose sees that the query has one number,
// TestKubernetes that the target is there.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	text := mustRead(t, "kubernetes/autoscaling.yaml")
	if problems := scaledObjectProblems(t, text); problems != nil {
		t.Error(problems)
	}
	target := scaling(t).Spec.ScaleTargetRef["name"]
	if replicas := mustManifests(t).deployments[target].Spec.Replicas; replicas != nil {
		t.Errorf("%s asks for %d pods each time that it is applied", target, *replicas)
	}
	for _, c := range []struct{ old, changed, want string }{
		{"cooldownPeriod: 300", "cooldown: 300", "there is no spec.cooldown"},
		{"cooldownPeriod: 300", "cooldownPeriod: -1", "spec.cooldownPeriod is less than 0"},
		{"cooldownPeriod: 300", "cooldownPeriod: 5m", "spec.cooldownPeriod is of the type string"},
		{"minReplicaCount: 1", "minReplicaCount: 1.5", "spec.minReplicaCount is of the type number"},
		{"minReplicaCount: 1", "minReplicaCount: 11", "the least number of pods is above the greatest"},
		{"{name: millrace-workers}", "{kind: Deployment}", "spec.scaleTargetRef.name is missing"},
		{"{name: millrace-workers}", "[workers]", "spec.scaleTargetRef is of the type list"},
		{`threshold: "50"`, "threshold: 50", "spec.triggers[].metadata is of the type object"},
		{`threshold: "50"`, `threshold: "fifty"`, "the threshold is no number above 0"},
		{"serverAddress", "address", "the trigger has no address"},
		{"serverAddress: http://", "serverAddress: /", "the address of Prometheus is no URL"},
		{"- type: prometheus", "- name: prometheus", "spec.triggers[].type is missing"},
		{"- type: prometheus", "- type: cpu", "the check does not know triggers of the type cpu"},
		{"v1alpha1", "v1", "KEDA has no keda.sh/v1 ScaledObject"},
	} {
		wrong := strings.Replace(text, c.old, c.changed, 1)
		problems := scaledObjectProblems(t, wrong)
		if (len(problems) == 0) || !strings.HasPrefix(problems[0], c.want) {
			t.Errorf("%q for %q: %q, want %q", c.changed, c.old, problems, c.want)
		}
	}
}
