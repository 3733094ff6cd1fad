package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	definitions = "../../crds/yaml"
	badInput    = "../../operator/core/tests/bad_input"
	goodInput   = "../../operator/core/tests/good_input"
	samples     = "../../manifests/samples"
)

// The line of a bad file that says why an API server accepts it all the same: what takes several objects or knowledge of
// engines to see, and where storebench is stricter on purpose. What has no such line must be refused by both.
const onlyStorebench = "# API server: "

// Why an API server accepts this file; empty if it does not.
func acceptedBecause(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if reason, found := strings.CutPrefix(line, onlyStorebench); found {
			return strings.TrimSpace(reason)
		}
	}
	return ""
}

func load(t *testing.T) Rules {
	t.Helper()
	rules, err := Load(definitions)
	if err != nil {
		t.Fatal("an API server would refuse ", OneLine(err))
	}
	return rules
}

func filesOf(t *testing.T, directory string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestBadInputIsRefusedByBothUnlessItSaysWhyNot(t *testing.T) {
	rules := load(t)
	files := filesOf(t, filepath.Join(badInput, "*"))
	if len(files) < 150 {
		t.Fatalf("%s holds only %d files", badInput, len(files))
	}
	var wrong []string
	accepted := 0
	for _, file := range files {
		name, text := strings.TrimPrefix(strings.TrimSuffix(file, ".yaml"), badInput+"/"), read(t, file)
		reason, err := acceptedBecause(text), rules.CreateFile(text)
		switch {
		case err != nil && reason == "":
			t.Logf("%-50s refused by both: %s", name, OneLine(err))
		case err == nil && reason != "":
			accepted++
			t.Logf("%-50s refused by storebench only: %s", name, reason)
		case err != nil:
			wrong = append(wrong, name+" says that an API server accepts it, but it refuses it, too: "+OneLine(err))
		default:
			wrong = append(wrong, name+" would be accepted by an API server: add a rule to the schema, or a line `"+onlyStorebench+"WHY`")
		}
	}
	// After the long list, where they are seen.
	for _, line := range wrong {
		t.Error(line)
	}
	if accepted == 0 {
		t.Error("no file says that an API server accepts it: was the line renamed?")
	}
}

func TestGoodInputIsAccepted(t *testing.T) {
	rules := load(t)
	good := filesOf(t, goodInput)
	if len(good) == 0 {
		t.Fatalf("%s is empty", goodInput)
	}
	for _, file := range slices.Concat(good, filesOf(t, samples), filesOf(t, samples+"/reports")) {
		if err := rules.CreateFile(read(t, file)); err != nil {
			t.Errorf("%s: %s", file, OneLine(err))
		} else {
			t.Logf("%s accepted", file)
		}
	}
}

// A run of which every field is set, so that every field can be taken away.
func completeRun(t *testing.T) map[string]any {
	t.Helper()
	objects, err := Objects(read(t, filepath.Join(goodInput, "2-etcd.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object["kind"] == "BenchmarkRun" {
			return object
		}
	}
	t.Fatal("2-etcd.yaml holds no BenchmarkRun")
	return nil
}

func TestOnlySuspendMayChangeInARun(t *testing.T) {
	rules := load(t)
	update := func(change func(spec map[string]any)) error {
		changed, old := completeRun(t), completeRun(t)
		change(changed["spec"].(map[string]any))
		kind, err := rules.kindOf(old)
		if err != nil {
			t.Fatal(err)
		}
		return kind.Update(changed, old)
	}
	if err := update(func(map[string]any) {}); err != nil {
		t.Errorf("no change is refused: %s", OneLine(err))
	}
	if err := update(func(spec map[string]any) { spec["suspend"] = false }); err != nil {
		t.Errorf("resuming is refused: %s", OneLine(err))
	}
	if err := update(func(spec map[string]any) { delete(spec, "suspend") }); err != nil {
		t.Errorf("resuming by leaving suspend out is refused: %s", OneLine(err))
	}
	changes := map[string]func(spec map[string]any){
		"an arm's service": func(spec map[string]any) {
			spec["arms"].([]any)[0].(map[string]any)["serviceRef"].(map[string]any)["name"] = "another"
		},
		"the order of arms": func(spec map[string]any) {
			arms := spec["arms"].([]any)
			arms[0], arms[1] = arms[1], arms[0]
		},
		"a load": func(spec map[string]any) {
			spec["workloads"].([]any)[0].(map[string]any)["load"].(map[string]any)["threads"] = int64(1)
		},
		"the seed":            func(spec map[string]any) { spec["trials"].(map[string]any)["seed"] = int64(7) },
		"the isolation":       func(spec map[string]any) { spec["isolation"] = "Fresh" },
		"the parallelism":     func(spec map[string]any) { spec["parallelism"] = int64(3) },
		"a gate":              func(spec map[string]any) { spec["gates"] = spec["gates"].([]any)[1:] },
		"the gates, all gone": func(spec map[string]any) { delete(spec, "gates") },
		"the time to live":    func(spec map[string]any) { spec["ttl"].(map[string]any)["success"] = "2h" },
		"no time to live":     func(spec map[string]any) { delete(spec, "ttl") },
		"the trials, all gone, so that they are the default": func(spec map[string]any) { delete(spec, "trials") },
	}
	for what, change := range changes {
		for _, resumed := range []bool{false, true} {
			err := update(func(spec map[string]any) {
				change(spec)
				spec["suspend"] = !resumed
			})
			if err == nil || !strings.Contains(err.Error(), "spec is immutable except for suspend") {
				t.Errorf("%s was changed (resumed at once: %v): %v", what, resumed, err)
			}
		}
	}
}

// The program is worth nothing if it does not see a defect: each of these is one that an API server refuses.
func TestDefectiveDefinitionsAreRefused(t *testing.T) {
	file := filepath.Join(definitions, "benchmarkruns.yaml")
	if _, err := NewKind(read(t, file)); err != nil {
		t.Fatal(OneLine(err))
	}
	defects := []struct{ what, old, new, refusal string }{
		{"a rule that does not compile", "self.min <= self.max", "self.min <= self.most", "undefined field 'most'"},
		{"a rule of another type", "self.min <= self.max", "self.min", "must evaluate to a bool"},
		{"a rule without bounds", "maxItems: 16\n", "minItems: 0\n", "exceeds budget"},
		{"a default that does not fit", "default: Fresh", "default: Frozen", "Unsupported value"},
		{"a schema that is not structural", "type: boolean", "title: truth", "Required value"},
		{"a printer column without a path", "jsonPath: .status.message", "jsonPath: '{'", "simple json path"},
		{"an unknown field", "scope: Namespaced", "scope: Namespaced\n  reach: wide", "unknown field"},
	}
	for _, defect := range defects {
		text := string(read(t, file))
		if !strings.Contains(text, defect.old) {
			t.Errorf("%s: the definition does not hold %q any more", defect.what, defect.old)
			continue
		}
		_, err := NewKind([]byte(strings.ReplaceAll(text, defect.old, defect.new)))
		if err == nil || !strings.Contains(err.Error(), defect.refusal) {
			t.Errorf("%s was not refused for %q: %v", defect.what, defect.refusal, err)
		}
	}
}

func TestStatusIsNeverCurrentBeforeAControllerHasSeenIt(t *testing.T) {
	for _, kind := range load(t) {
		object := map[string]any{"apiVersion": kind.apiVersion, "kind": kind.kind, "metadata": map[string]any{"name": "demo"}}
		kind.withDefaults(object)
		status, _ := json.Marshal(object["status"])
		wanted := `"observedGeneration":-1`
		if kind.kind == "WorkloadTemplate" {
			// What others only read has no status, and is current as it is.
			wanted = "null"
		}
		if !strings.Contains(string(status), wanted) {
			t.Errorf("%s is created with status %s", kind.kind, status)
		}
	}
}
