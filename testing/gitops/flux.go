package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/runtime/cel"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	strictyaml "sigs.k8s.io/yaml"
)

// Flux holds its own evaluators of a Kustomization's healthCheckExprs.
type Flux map[schema.GroupKind]*cel.StatusEvaluator

// LoadFlux reads a GitRepository and the Kustomization of it, strictly: a field that Flux does not know is an error.
func LoadFlux(file string) (Flux, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var repository sourcev1.GitRepository
	var kustomization kustomizev1.Kustomization
	for _, object := range []any{&repository, &kustomization} {
		document, err := reader.Read()
		if err == nil {
			err = decode(document, object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if source := kustomization.Spec.SourceRef; source.Kind != repository.Kind || source.Name != repository.Name {
		return nil, fmt.Errorf("%s: the Kustomization's source is not the GitRepository before it", file)
	}
	if !kustomization.Spec.Wait {
		return nil, fmt.Errorf("%s: the Kustomization does not wait: set wait: true", file)
	}
	flux := Flux{}
	for _, check := range kustomization.Spec.HealthCheckExprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, check.Kind, err)
		}
		flux[schema.FromAPIVersionAndKind(check.APIVersion, check.Kind).GroupKind()] = evaluator
	}
	return flux, nil
}

// As an API server decodes: unlike Go's own decoder it tells timeout from timeOut.
func decode(document []byte, object any) error {
	asJSON, err := strictyaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	refusals, err := json.UnmarshalStrict(asJSON, object)
	return errors.Join(append(refusals, err)...)
}

// Ask says what Flux makes of an object.
func (f Flux) Ask(ctx context.Context, object *unstructured.Unstructured) (string, error) {
	evaluator, found := f[object.GroupVersionKind().GroupKind()]
	if !found {
		return "", fmt.Errorf("there are no expressions for %s", object.GetKind())
	}
	result, err := evaluator.Evaluate(ctx, object)
	if err != nil {
		return "", err
	}
	return string(result.Status), nil
}
