package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	recorded = "../../operator/core/tests/statuses"
	readMe   = manifests + "/README.md"
	argocdCM = manifests + "/argocd/argocd-cm.yaml"
)

// A row of the table in README.md: what users are told that each tool reports.
type row struct {
	Said
	pipeline string
}

var rowOfState = regexp.MustCompile("^\\| `((?:run|service)-[a-z-]+)` \\| (\\w+) \\| (\\w+) \\| (\\w+) \\| ([0-4–]) \\|$")

func documented(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile(readMe)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for _, line := range strings.Split(string(text), "\n") {
		if cells := rowOfState.FindStringSubmatch(line); cells != nil {
			rows[cells[1]] = row{Said{Kstatus: cells[2], Flux: cells[3], ArgoCD: cells[4]}, cells[5]}
		}
	}
	return rows
}

func states(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recorded, "*.yaml"))
	if err != nil || len(files) < 18 {
		t.Fatalf("%s holds only %d files, error %v", recorded, len(files), err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for _, file := range files {
		object, err := ReadObject(file)
		if err != nil {
			t.Fatal(err)
		}
		objects[strings.TrimSuffix(filepath.Base(file), ".yaml")] = object
	}
	return objects
}

func load(t *testing.T) *Tools {
	t.Helper()
	tools, err := LoadTools(manifests)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// The ConfigMap is what users apply, the .lua files are what people edit. UPDATE_ARGOCD=1 makes the former from the latter,
// before any other test of this file reads it.
func TestTheConfigMapHoldsTheHealthChecks(t *testing.T) {
	text := "# Health checks for Argo CD; the other keys of argocd-cm stay as they are:\n" +
		"# kubectl --namespace argocd patch configmap argocd-cm --patch-file manifests/gitops/argocd/argocd-cm.yaml\n" +
		"# Made from the .lua files beside it by: UPDATE_ARGOCD=1 testing/gitops/test\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\n  namespace: argocd\ndata:\n"
	for _, kind := range []string{"BenchmarkRun", "StorageService"} {
		script, err := os.ReadFile(filepath.Join(manifests, "argocd", strings.ToLower(kind)+".lua"))
		if err != nil {
			t.Fatal(err)
		}
		text += "  " + healthKey("storebench.dev", kind) + ": |\n"
		for line := range strings.Lines(string(script)) {
			text += "    " + line
		}
	}
	if os.Getenv("UPDATE_ARGOCD") != "" {
		if err := os.WriteFile(argocdCM, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	configMap, err := os.ReadFile(argocdCM)
	if err != nil || string(configMap) != text {
		t.Errorf("%s is not made from the .lua files beside it, error %v; run: UPDATE_ARGOCD=1 testing/gitops/test", argocdCM, err)
	}
}

func TestEveryStateIsReportedAsDocumented(t *testing.T) {
	tools, rows, objects := load(t), documented(t), states(t)
	for _, state := range slices.Sorted(maps.Keys(objects)) {
		row, found := rows[state]
		if !found {
			t.Errorf("%s has no row in %s", state, readMe)
			continue
		}
		said, err := tools.Ask(objects[state])
		if err != nil {
			t.Errorf("%s: %s", state, err)
			continue
		}
		t.Logf("%-28s %-12s %-11s %-12s %s", state, said.Kstatus, said.Flux, said.ArgoCD, said.ArgoCDMessage)
		said.ArgoCDMessage = ""
		if said != row.Said {
			t.Errorf("%s: %s says %+v, the tools say %+v", state, readMe, row.Said, said)
		}
	}
	for state := range rows {
		if objects[state] == nil {
			t.Errorf("%s has a row for %s, which is not recorded", readMe, state)
		}
	}
}

// Nobody should be kept from reading why: Argo CD shows only the message of the health check.
func TestArgoCDShowsTheOperatorsMessage(t *testing.T) {
	tools := load(t)
	for state, object := range states(t) {
		conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
		if err != nil {
			t.Fatal(err)
		}
		if len(conditions) == 0 || object.GetDeletionTimestamp() != nil || strings.HasSuffix(state, "newer-generation") {
			continue
		}
		message := conditions[0].(map[string]any)["message"].(string)
		said, err := tools.Ask(object)
		if err != nil || !strings.Contains(said.ArgoCDMessage, message) {
			t.Errorf("%s: Argo CD shows %q, error %v, not %q", state, said.ArgoCDMessage, err, message)
		}
	}
}

func TestAStatusWithoutConditionsIsInProgress(t *testing.T) {
	tools := load(t)
	for _, state := range []string{"run-passed", "service-ready"} {
		for _, spoil := range []func(status map[string]any){
			func(status map[string]any) { delete(status, "conditions") },
			func(status map[string]any) { status["conditions"] = []any{} },
		} {
			object := states(t)[state]
			spoil(object.Object["status"].(map[string]any))
			said, err := tools.Ask(object)
			if err != nil || said.Flux != "InProgress" || said.ArgoCD != "Progressing" {
				t.Errorf("%s: %+v, error %v", state, said, err)
			}
		}
	}
}
