package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// This program is also the kubectl and the storebench that the script under test finds on its PATH.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "kubectl":
		os.Exit(kubectl(os.Args[1:]))
	case "storebench":
		fmt.Println("storebench", strings.Join(os.Args[1:], " "))
		code, err := strconv.Atoi(os.Getenv("STOREBENCH_CODE"))
		if err != nil {
			os.Exit(99)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// As kubectl does what the script asks of it, with one recorded object that exists once the file `applied` does.
func kubectl(arguments []string) int {
	failed := func(message ...any) int {
		fmt.Fprintln(os.Stderr, message...)
		return 7
	}
	if len(arguments) < 3 || arguments[0] != "--namespace" || arguments[1] != "bench" {
		return failed("error: not for the namespace bench:", arguments)
	}
	applied := os.Getenv("KUBECTL_APPLIED")
	_, err := os.Stat(applied)
	exists := err == nil
	switch line := strings.Join(arguments[2:], " "); {
	case os.Getenv("KUBECTL_DOWN") != "":
		return failed("The connection to the server was refused")
	case line == "get benchmarkrun/demo --ignore-not-found --output name":
		if exists {
			fmt.Println("benchmarkrun.storebench.dev/demo")
		}
		return 0
	case line == "apply --filename demo.yaml":
		if err := os.WriteFile(applied, nil, 0o644); err != nil {
			return failed(err)
		}
		return 0
	case !exists:
		return failed("Error from server (NotFound)")
	}
	object, err := ReadObject(os.Getenv("KUBECTL_OBJECT"))
	if err != nil {
		return failed(err)
	}
	line := strings.Join(arguments[2:], " ")
	if line == "wait benchmarkrun/demo --for=condition=Complete --timeout=2s" {
		if !holds(object, "Complete") {
			return failed("error: timed out waiting for the condition on benchmarkruns/demo")
		}
		return 0
	}
	expression, isGet := strings.CutPrefix(line, "get benchmarkrun/demo --output jsonpath=")
	if !isGet {
		return failed("error: unknown command", line)
	}
	path := jsonpath.New("get").AllowMissingKeys(true)
	if err := path.Parse(expression); err != nil {
		return failed(err)
	}
	if err := path.Execute(os.Stdout, object.Object); err != nil {
		return failed(err)
	}
	return 0
}

// What `kubectl wait --for=condition=NAME` waits for: a condition of an older generation does not count.
func holds(object *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields := condition.(map[string]any)
		observed, found := fields["observedGeneration"].(int64)
		return fields["type"] == name && fields["status"] == "True" && (!found || observed >= object.GetGeneration())
	})
}

type pipeline struct {
	t           *testing.T
	path        string
	environment []string
}

func newPipeline(t *testing.T, programs ...string) pipeline {
	t.Helper()
	directory := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if err := os.Symlink(self, filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing else but a shell: neither a real kubectl nor a real storebench.
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bash, filepath.Join(directory, "bash")); err != nil {
		t.Fatal(err)
	}
	applied := filepath.Join(directory, "applied")
	return pipeline{t, applied, []string{"PATH=" + directory, "TIMEOUT=2s", "KUBECTL_APPLIED=" + applied}}
}

func (p pipeline) run(environment []string, arguments ...string) (code int, output string) {
	p.t.Helper()
	command := exec.Command(filepath.Join(manifests, "pipeline", "run"), arguments...)
	command.Env = append(p.environment, environment...)
	var both bytes.Buffer
	command.Stdout, command.Stderr = &both, &both
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), both.String()
}

func TestThePipelineEndsWithTheVerdict(t *testing.T) {
	tried := 0
	for state, row := range documented(t) {
		if row.pipeline == "–" {
			continue
		}
		tried++
		object := "KUBECTL_OBJECT=" + filepath.Join(recorded, state+".yaml")
		code, output := newPipeline(t, "kubectl").run([]string{object}, "demo.yaml", "demo", "bench")
		if strconv.Itoa(code) != row.pipeline {
			t.Errorf("%s: %s says %s, the script ends with %d: %s", state, readMe, row.pipeline, code, output)
		}
		t.Logf("%-28s %d %s", state, code, strings.Join(strings.Fields(output), " "))
	}
	if tried < 14 {
		t.Errorf("only %d states were tried", tried)
	}
}

func TestThePipelineLeavesTheWaitingToStorebench(t *testing.T) {
	for _, code := range []int{0, 1, 2, 3, 4} {
		found, output := newPipeline(t, "kubectl", "storebench").run(
			[]string{fmt.Sprintf("STOREBENCH_CODE=%d", code)}, "demo.yaml", "demo", "bench")
		if found != code || output != "storebench wait benchmarkrun/demo --namespace bench --timeout 2s\n" {
			t.Errorf("storebench ends with %d, the script with %d: %s", code, found, output)
		}
	}
}

func TestAnEarlierVerdictIsNotTakenForThisOne(t *testing.T) {
	p := newPipeline(t, "kubectl")
	object := "KUBECTL_OBJECT=" + filepath.Join(recorded, "run-passed.yaml")
	if code, output := p.run([]string{object}, "demo.yaml", "demo", "bench"); code != 0 {
		t.Fatalf("%d: %s", code, output)
	}
	code, output := p.run([]string{object}, "demo.yaml", "demo", "bench")
	if code != 1 || !strings.Contains(output, "benchmarkrun/demo exists: give the new run another name") {
		t.Errorf("%d: %s", code, output)
	}
}

func TestTroubleIsNotAVerdict(t *testing.T) {
	for name, try := range map[string]func(p pipeline) (int, string){
		"no arguments":       func(p pipeline) (int, string) { return p.run(nil) },
		"unreachable server": func(p pipeline) (int, string) { return p.run([]string{"KUBECTL_DOWN=1"}, "demo.yaml", "demo", "bench") },
		"refused file":       func(p pipeline) (int, string) { return p.run(nil, "other.yaml", "demo", "bench") },
	} {
		if code, output := try(newPipeline(t, "kubectl")); code != 1 {
			t.Errorf("%s: %d: %s", name, code, output)
		}
	}
	if code, output := newPipeline(t).run(nil, "demo.yaml", "demo", "bench"); code != 1 {
		t.Errorf("no kubectl: %d: %s", code, output)
	}
}
