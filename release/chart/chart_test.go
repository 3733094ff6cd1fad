// Package chart holds manifests/helm against the kustomizations, object by object. Both are rendered by the libraries that helm and
// kustomize are made of; nothing is asked of a cluster.
package chart

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	project = "../.."
	folder  = project + "/manifests/helm"
	// The namespace in which manifests/install has the operator.
	system = "storebench-system"
)

type (
	values  = map[string]any
	objects = map[string]map[string]any // by kind, namespace and name
)

// TestMain keeps Helm from naming every link that it follows.
func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	os.Exit(m.Run())
}

// put files an object by its key, after what has no meaning was put into one order.
func put(t *testing.T, into objects, object map[string]any) {
	t.Helper()
	metadata := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	key := object["kind"].(string) + " " + namespace + "/" + metadata["name"].(string)
	if _, twice := into[key]; twice {
		t.Errorf("%s is made twice", key)
	}
	if object["kind"] == "Deployment" {
		variables := container(object)["env"].([]any)
		slices.SortFunc(variables, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
	}
	into[key] = object
}

func container(deployment map[string]any) map[string]any {
	spec := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	return spec["containers"].([]any)[0].(map[string]any)
}

// variable is the value of one of the operator's variables.
func variable(made objects, name string) string {
	for key, object := range made {
		if strings.HasPrefix(key, "Deployment ") {
			for _, one := range container(object)["env"].([]any) {
				if one := one.(map[string]any); one["name"] == name {
					value, _ := one["value"].(string)
					return value
				}
			}
		}
	}
	return ""
}

// byHelm is what the chart makes: its CRDs, too.
func byHelm(t *testing.T, namespace string, given values) (objects, error) {
	t.Helper()
	chart, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "storebench", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, given, release, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	made := objects{}
	texts := []string{}
	for path, text := range rendered {
		if filepath.Base(path) != "NOTES.txt" {
			texts = append(texts, regexp.MustCompile(`(?m)^---$`).Split(text, -1)...)
		}
	}
	for _, crd := range chart.CRDObjects() {
		texts = append(texts, string(crd.File.Data))
	}
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		put(t, made, object)
	}
	return made, nil
}

func mustHelm(t *testing.T, namespace string, given values) objects {
	t.Helper()
	made, err := byHelm(t, namespace, given)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// byKustomize is what folders below manifests/ make together.
func byKustomize(t *testing.T, folders ...string) objects {
	t.Helper()
	made := objects{}
	for _, folder := range folders {
		path := filepath.Join(project, "manifests", folder)
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range resources.Resources() {
			// By way of text, so that numbers are of the types that Helm's are of.
			text, err := resource.AsYAML()
			if err != nil {
				t.Fatal(err)
			}
			object := map[string]any{}
			if err := yaml.Unmarshal(text, &object); err != nil {
				t.Fatal(err)
			}
			put(t, made, object)
		}
	}
	return made
}

func TestHelmAndKustomizeMakeTheSameObjects(t *testing.T) {
	registry := values{"image": values{"registry": "registry.example"}, "engineRegistry": "registry.example"}
	for _, test := range []struct {
		name      string
		given     values
		kustomize []string
		least     int
	}{
		{"as it is", values{}, []string{"install"}, 20},
		{"cluster-wide", values{"clusterWide": true}, []string{"cluster-wide"}, 22},
		{"with policies", values{"policies": values{"enabled": true}}, []string{"install", "policies"}, 26},
		{"with a PodMonitor", values{"podMonitor": values{"enabled": true}}, []string{"install", "monitoring"}, 21},
		{"from a registry of one's own", registry, []string{"own-registry"}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			wanted, found := byKustomize(t, test.kustomize...), mustHelm(t, system, test.given)
			if len(wanted) < test.least {
				t.Fatalf("kustomize makes %d objects only", len(wanted))
			}
			// The one that Helm makes itself, as --create-namespace asks.
			delete(wanted, "Namespace /"+system)
			for _, key := range slices.Sorted(maps.Keys(wanted)) {
				if _, both := found[key]; !both {
					t.Errorf("the chart makes no %s", key)
				} else if wanted, found := text(t, wanted[key]), text(t, found[key]); wanted != found {
					t.Errorf("%s differs: %s", key, firstDifference(wanted, found))
				}
			}
			for _, key := range slices.Sorted(maps.Keys(found)) {
				if _, both := wanted[key]; !both {
					t.Errorf("kustomize makes no %s", key)
				}
			}
		})
	}
}

// text is the canonical form of an object.
func text(t *testing.T, object map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func firstDifference(wanted, found string) string {
	a, b := strings.Split(wanted, "\n"), strings.Split(found, "\n")
	for line := range min(len(a), len(b)) {
		if a[line] != b[line] {
			return "kustomize has `" + strings.TrimSpace(a[line]) + "`, the chart `" + strings.TrimSpace(b[line]) + "`"
		}
	}
	return "one of them has more lines"
}

// A release elsewhere leaves nothing behind in the namespaces of the manifests, policies included.
func TestOtherNamespacesAreMeantEverywhere(t *testing.T) {
	made := mustHelm(t, "ours", values{"namespace": "team", "policies": values{"enabled": true}})
	for key, object := range made {
		if strings.HasPrefix(key, "CustomResourceDefinition ") {
			continue
		}
		for _, old := range []string{system, `\bbenchmarks\b`} {
			if found := regexp.MustCompile(old).FindString(text(t, object)); found != "" {
				t.Errorf("%s still says %s", key, found)
			}
		}
	}
	for _, key := range []string{"Namespace /team", "RoleBinding team/storebench-operator-stores", "Deployment ours/storebench-operator"} {
		if made[key] == nil {
			t.Errorf("there is no %s", key)
		}
	}
	if text := text(t, made["ValidatingAdmissionPolicy /storebench-records"]); !strings.Contains(text, "system:serviceaccount:ours:storebench-operator") {
		t.Error("the policy lets another account write records")
	}
}

// Names of the manifests may be given another meaning.
func TestNamespacesMayChangePlaces(t *testing.T) {
	made := mustHelm(t, "benchmarks", values{"namespace": system})
	for _, key := range []string{
		"Namespace /" + system,
		"Role " + system + "/storebench-operator-stores",
		"Role benchmarks/storebench-operator",
		"Deployment benchmarks/storebench-operator",
	} {
		if made[key] == nil {
			t.Errorf("there is no %s", key)
		}
	}
	if found := variable(made, "STOREBENCH_NAMESPACE"); found != system {
		t.Errorf("the operator looks after %q", found)
	}
}

func TestNamespacesThatAreThereAreNotMade(t *testing.T) {
	for name, made := range map[string]objects{
		"createNamespace: false":       mustHelm(t, system, values{"createNamespace": false}),
		"one namespace for everything": mustHelm(t, "benchmarks", values{}),
	} {
		for key := range made {
			if strings.HasPrefix(key, "Namespace ") {
				t.Errorf("%s: %s is made", name, key)
			}
		}
	}
}

func TestValuesArriveInTheOperatorsPod(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	made := mustHelm(t, system, values{
		"image":        values{"registry": "registry.example/team/", "operatorDigest": digest, "tag": "1.2.3", "pullSecrets": []any{"one", "two"}},
		"resources":    values{"limits": values{"memory": "1Gi"}},
		"nodeSelector": values{"kubernetes.io/arch": "arm64"},
		"settings":     values{"STOREBENCH_RUN_HOURS_MAX": "48", "STOREBENCH_LOG_FORMAT": "text"},
		"policies":     values{"enabled": true, "imagePrefixes": []any{"registry.example/team/", "storebench/etcd:"}, "endpointHosts": []any{"redis.example"}},
	})
	deployment := made["Deployment "+system+"/storebench-operator"]
	for what, pair := range map[string][2]any{
		"the operator's image": {"registry.example/team/storebench/operator@" + digest, container(deployment)["image"]},
		"the load's image":     {"registry.example/team/storebench/bench-job:1.2.3", variable(made, "STOREBENCH_BENCH_JOB_IMAGE")},
		"secrets for pods":     {"one,two", variable(made, "STOREBENCH_IMAGE_PULL_SECRETS")},
		"a setting":            {"48", variable(made, "STOREBENCH_RUN_HOURS_MAX")},
		"a setting replaced":   {"text", variable(made, "STOREBENCH_LOG_FORMAT")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: wanted %v, found %v", what, pair[0], pair[1])
		}
	}
	for key, wanted := range map[string]string{
		"Deployment " + system + "/storebench-operator":           "kubernetes.io/arch: arm64",
		"ServiceAccount " + system + "/storebench-operator":       "- name: two",
		"ValidatingAdmissionPolicy /storebench-allowed-images":    "expression: '[''registry.example/team/'', ''storebench/etcd:'']'",
		"ValidatingAdmissionPolicy /storebench-allowed-endpoints": "expression: '[''redis.example'']'",
	} {
		if text := text(t, made[key]); !strings.Contains(text, wanted) {
			t.Errorf("%s has no `%s`:\n%s", key, wanted, text)
		}
	}
	if resources := text(t, container(deployment)["resources"].(map[string]any)); resources != "limits:\n  memory: 1Gi\n" {
		t.Errorf("resources are more than what was asked: %s", resources)
	}
}

func TestAPodMonitorIsWhereRunsAreAndHasTheLabelsThatAPrometheusWants(t *testing.T) {
	given := values{"namespace": "runs", "podMonitor": values{"enabled": true, "labels": values{"release": "prometheus"}}}
	for clusterWide, wanted := range map[bool]string{false: "", true: "any: true"} {
		given["clusterWide"] = clusterWide
		found := text(t, mustHelm(t, system, given)["PodMonitor runs/storebench-load"])
		if !strings.Contains(found, "release: prometheus") || !strings.Contains(found, "app.kubernetes.io/part-of: storebench") {
			t.Errorf("labels are lost:\n%s", found)
		}
		if has := strings.Contains(found, "namespaceSelector:"); has != clusterWide || !strings.Contains(found, wanted) {
			t.Errorf("with clusterWide %v:\n%s", clusterWide, found)
		}
	}
}

func TestMistakesInValuesAreRefused(t *testing.T) {
	for name, given := range map[string]values{
		"clusterwide":      {"clusterwide": true},
		"/clusterWide":     {"clusterWide": "yes"},
		"/namespace":       {"namespace": "My Benchmarks"},
		"/image/tag":       {"image": values{"tag": "latest"}},
		"operatorDigest":   {"image": values{"operatorDigest": "0.1.0"}},
		"/policies/image":  {"policies": values{"imagePrefixes": []any{"registry.example"}}},
		"/policies/endpoi": {"policies": values{"endpointHosts": []any{"redis.example:6379"}}},
		"settings/STOREBE": {"settings": values{"STOREBENCH_RUN_HOURS_MAX": 48}},
	} {
		_, err := byHelm(t, system, given)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: the error does not name %s: %v", given, name, err)
		}
	}
}

func TestHelmHasNothingToSayOfTheChart(t *testing.T) {
	version := common.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	for _, given := range []values{{}, {"clusterWide": true, "policies": values{"enabled": true}, "podMonitor": values{"enabled": true}}} {
		result := lint.RunAll(folder, given, system, lint.WithKubeVersion(&version))
		for _, message := range result.Messages {
			if message.Severity >= support.WarningSev {
				t.Errorf("%v: %v", given, message)
			}
		}
	}
}

func TestTheChartIsOfTheVersionOfThePrograms(t *testing.T) {
	text, err := os.ReadFile(project + "/Cargo.toml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)\[workspace\.package\]\s*version = "([^"]+)"`).FindSubmatch(text)
	if found == nil {
		t.Fatal("Cargo.toml has no version")
	}
	chart, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if wanted := string(found[1]); chart.Metadata.Version != wanted || chart.Metadata.AppVersion != wanted {
		t.Errorf("Cargo.toml has %s, Chart.yaml %s for %s", wanted, chart.Metadata.Version, chart.Metadata.AppVersion)
	}
}
