package main

import (
	_ "github.com/fluxcd/pkg/apis/kustomize"
	_ "github.com/fluxcd/pkg/runtime/cel"
	_ "github.com/yuin/gopher-lua"
	_ "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	_ "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	_ "sigs.k8s.io/yaml"
)
func main() {}
