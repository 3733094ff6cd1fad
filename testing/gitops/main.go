// Command gitops says what GitOps tools make of storebench's objects with manifests/gitops, by the tools' own code and
// without a cluster.
//
//	go run . FILE…
//
// It prints a line for each object: what kstatus says, what Flux says with healthCheckExprs, and what Argo CD says.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

const manifests = "../../manifests/gitops"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gitops FILE…")
		os.Exit(2)
	}
	if err := report(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(files []string) error {
	tools, err := LoadTools(manifests)
	if err != nil {
		return err
	}
	for _, file := range files {
		object, err := ReadObject(file)
		if err != nil {
			return err
		}
		said, err := tools.Ask(object)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Println(filepath.Base(file), said.Kstatus, said.Flux, said.ArgoCD, said.ArgoCDMessage)
	}
	return nil
}

// ReadObject reads a file of one object.
func ReadObject(file string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	object := &unstructured.Unstructured{}
	// Kubernetes' own decoder, which tells integers from floats.
	if err := json.Unmarshal(asJSON, &object.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return object, nil
}
