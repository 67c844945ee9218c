package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// alertRule is a rule of prometheus/alerts.yml.
type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	mustDecode(t, mustRead(t, "prometheus/alerts.yml"), &file)
	return file.Groups[0].Rules
}

// mustDecode decodes YAML. A member that the type does not have ends the test.
func mustDecode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// scaledObject is what autoscaling.yaml uses of KEDA.
type scaledObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       struct {
		ScaleTargetRef  map[string]string `json:"scaleTargetRef"`
		MinReplicaCount int               `json:"minReplicaCount"`
		MaxReplicaCount int               `json:"maxReplicaCount"`
		CooldownPeriod  int               `json:"cooldownPeriod"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

func scaling(t *testing.T) (o scaledObject) {
	t.Helper()
	mustDecode(t, mustRead(t, "kubernetes/autoscaling.yaml"), &o)
	return o
}

func scalingQuery(t *testing.T) string {
	t.Helper()
	return scaling(t).Spec.Triggers[0].Metadata["query"]
}

// manifests are the objects of the folder, by kind and name. What no type of Kubernetes has ends
// the test.
type manifests struct {
	settings    core.ConfigMap
	service     core.Service
	disruption  policy.PodDisruptionBudget
	deployments map[string]apps.Deployment
}

func mustManifests(t *testing.T) manifests {
	t.Helper()
	m := manifests{deployments: map[string]apps.Deployment{}}
	var list struct {
		Resources []string `json:"resources"`
	}
	text := mustRead(t, "kubernetes/kustomization.yaml")
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, name := range list.Resources {
		text := mustRead(t, filepath.Join("kubernetes", name))
		var d apps.Deployment
		switch name {
		case "settings.yaml":
			mustDecode(t, text, &m.settings)
		case "service.yaml":
			mustDecode(t, text, &m.service)
		case "disruption.yaml":
			mustDecode(t, text, &m.disruption)
		default:
			mustDecode(t, text, &d)
			m.deployments[d.Name] = d
		}
	}
	if len(m.deployments) != 2 || m.service.Name == "" || m.disruption.Name == "" {
		t.Fatalf("the kustomization has %v", list.Resources)
	}
	return m
}

// TestKubernetes: settings, routes, ports, names and times of the manifests agree with those of
// Millrace and of each other.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	m, n := mustManifests(t), startNode(t)
	settings := maps.Clone(m.settings.Data)
	maps.Copy(settings, secretOfThePage(t))
	for name, d := range m.deployments {
		c := d.Spec.Template.Spec.Containers[0]
		checkSettings(t, name, settings)
		checkGrace(t, name, settings,
			time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second,
			time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
		if c.Ports[0].Name != "http" || uint32(c.Ports[0].ContainerPort) != imagePort(t) {
			t.Errorf("%s: the ports are %+v", name, c.Ports)
		}
		for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
				t.Errorf("%s: a probe asks %+v", name, probe.HTTPGet)
			}
			if status, _ := n.get(t, probe.HTTPGet.Path); status != 200 {
				t.Errorf("%s: %s is %d", name, probe.HTTPGet.Path, status)
			}
		}
		if status, _ := n.get(t, d.Spec.Template.Annotations["prometheus.io/path"]); status != 200 {
			t.Errorf("%s: Prometheus asks for what is %d", name, status)
		}
		if !reflect.DeepEqual(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
			t.Errorf("%s does not select its pods", name)
		}
		help := mustShell(t, ".", mustBinary(t)+" "+c.Args[0]+" --help")
		if !strings.Contains(help, c.Args[1]+" ") {
			t.Errorf("%s: there is no %v", name, c.Args)
		}
	}
	pods := m.deployments["millrace"].Spec.Template.Labels
	if !reflect.DeepEqual(m.service.Spec.Selector, pods) ||
		!reflect.DeepEqual(m.disruption.Spec.Selector.MatchLabels, pods) ||
		m.service.Spec.Ports[0].TargetPort.StrVal != "http" {
		t.Error("service or disruption budget do not select the pods of millrace")
	}
	if int(*m.deployments["millrace"].Spec.Replicas) <= m.disruption.Spec.MinAvailable.IntValue() {
		t.Error("the disruption budget lets no pod go")
	}
	target := scaling(t).Spec.ScaleTargetRef["name"]
	if _, ok := m.deployments[target]; !ok {
		t.Errorf("there is nothing to scale: %q", target)
	}
}

// kubectlPrelude stands for a cluster in the commands of the page: what they would make there is
// printed, and what belongs together by a kustomization is put together.
const kubectlPrelude = `set -e
kubectl() {
	echo ---
	case "$1 $2" in
	"create secret") command kubectl "$@" --dry-run=client -o yaml ;;
	"apply -k") command kubectl kustomize "$3" ;;
	"apply -f") cat "$3" ;;
	*) return 97 ;;
	esac
}
`

// applied returns what the commands of the page make in a cluster, as YAML, by kind and name.
func applied(t *testing.T) map[string]string {
	t.Helper()
	program(t, "kubectl")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mustShell(t, dir, "ln -s "+here+" deploy")
	out, objects := mustShell(t, dir, kubectlPrelude+strings.Join(shellBlocks(t, "Kubernetes"), "\n")),
		map[string]string{}
	for _, text := range regexp.MustCompile(`(?m)^---\n`).Split(out, -1)[1:] {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		objects[object.Kind+"/"+object.Metadata.Name] = text
	}
	return objects
}

// TestKubernetesOfThePage: the commands of the page make the objects of this folder, with the image
// of the kustomization, and the secrets that these use.
func TestKubernetesOfThePage(t *testing.T) {
	t.Parallel()
	made := applied(t)
	want := []string{"ConfigMap/millrace", "Deployment/millrace", "Deployment/millrace-workers",
		"PodDisruptionBudget/millrace", "ScaledObject/millrace-workers", "Secret/millrace",
		"Secret/millrace-pepper", "Service/millrace"}
	if got := slices.Sorted(maps.Keys(made)); !slices.Equal(got, want) {
		t.Errorf("the page makes %v, want %v", got, want)
	}
	var pepper core.Secret
	mustDecode(t, made["Secret/millrace-pepper"], &pepper)
	for name := range mustManifests(t).deployments {
		var d apps.Deployment
		mustDecode(t, made["Deployment/"+name], &d)
		pod := d.Spec.Template.Spec
		if got := pod.Containers[0].Image; got != "registry.example.org/millrace:1.0" {
			t.Errorf("%s has the image %s", name, got)
		}
		for _, from := range pod.Containers[0].EnvFrom {
			if from.SecretRef != nil && made["Secret/"+from.SecretRef.Name] == "" {
				t.Errorf("%s: nothing makes the secret %s", name, from.SecretRef.Name)
			}
		}
		at := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Secret != nil })
		file := filepath.Base(mustManifests(t).settings.Data["MILLRACE__SECRETS__PEPPER_FILE"])
		if at < 0 || pod.Volumes[at].Secret.SecretName != pepper.Name || len(pepper.Data[file]) < 64 {
			t.Errorf("%s: the file %s is not in %+v of the page", name, file, pepper.Name)
		}
	}
}

// secretOfThePage is what the page puts into the Secret millrace.
func secretOfThePage(t *testing.T) map[string]string {
	t.Helper()
	var secret core.Secret
	mustDecode(t, applied(t)["Secret/millrace"], &secret)
	settings := map[string]string{}
	for key, value := range secret.Data {
		settings[key] = string(value)
	}
	if len(settings) == 0 {
		t.Fatal("the page makes no Secret millrace")
	}
	return settings
}

// dockerfile finds an instruction of the Dockerfile.
func dockerfile(t *testing.T, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(mustRead(t, "Dockerfile"))
	if found == nil {
		t.Fatal("the Dockerfile has no ", pattern)
	}
	return found[1]
}

// imageEnvironment is the environment that the image sets.
func imageEnvironment(t *testing.T) []string {
	t.Helper()
	return strings.Fields(strings.ReplaceAll(dockerfile(t, `^ENV (.*)$`), "PATH=/bin ", ""))
}

// imagePort is the port of the image: the one that it exposes and the server listens on.
func imagePort(t *testing.T) uint32 {
	t.Helper()
	if dockerfile(t, `^EXPOSE (\d+)$`) != "8080" ||
		!strings.HasSuffix(dockerfile(t, `MILLRACE__LISTEN=(\S+)`), ":8080") {
		t.Fatal("the ports of the Dockerfile differ")
	}
	return 8080
}
