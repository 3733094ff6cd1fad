package main

import (
	"context"
	"fmt"
	"path/filepath"

	fork "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Said is what each tool says of one object.
type Said struct {
	Kstatus, Flux, ArgoCD, ArgoCDMessage string
}

// Tools are the tools, set up as manifests/gitops sets them up.
type Tools struct {
	flux   Flux
	argoCD ArgoCD
}

// LoadTools reads the manifests that users apply.
func LoadTools(manifests string) (*Tools, error) {
	flux, err := LoadFlux(filepath.Join(manifests, "flux", "benchmarks.yaml"))
	if err != nil {
		return nil, err
	}
	argoCD, err := LoadArgoCD(filepath.Join(manifests, "argocd", "argocd-cm.yaml"))
	if err != nil {
		return nil, err
	}
	return &Tools{flux, argoCD}, nil
}

// Ask asks every tool about an object.
func (t *Tools) Ask(object *unstructured.Unstructured) (said Said, err error) {
	if said.Kstatus, err = kstatus(object); err != nil {
		return said, fmt.Errorf("kstatus: %w", err)
	}
	if said.Flux, err = t.flux.Ask(context.Background(), object); err != nil {
		return said, fmt.Errorf("Flux: %w", err)
	}
	if said.ArgoCD, said.ArgoCDMessage, err = t.argoCD.Ask(object); err != nil {
		return said, fmt.Errorf("Argo CD: %w", err)
	}
	return said, nil
}

// Flux waits with a fork of kstatus: whatever the two agree on is what both kinds of users see.
func kstatus(object *unstructured.Unstructured) (string, error) {
	result, err := status.Compute(object)
	if err != nil {
		return "", err
	}
	forked, err := fork.Compute(object)
	if err != nil {
		return "", err
	}
	if string(result.Status) != string(forked.Status) {
		return "", fmt.Errorf("it says %s, and Flux's fork of it %s", result.Status, forked.Status)
	}
	return string(result.Status), nil
}
