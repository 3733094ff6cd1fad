package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// ArgoCD holds health checks, in Lua, by their keys in argocd-cm.
type ArgoCD map[string]string

// LoadArgoCD reads a patch of argocd-cm.
func LoadArgoCD(file string) (ArgoCD, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var configMap corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &configMap); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return configMap.Data, nil
}

func healthKey(group, kind string) string {
	return "resource.customizations.health." + group + "_" + kind
}

// What a health check may answer.
var healths = []string{"Healthy", "Progressing", "Suspended", "Degraded", "Missing", "Unknown"}

// Ask says what Argo CD makes of an object, and the message that it shows.
func (a ArgoCD) Ask(object *unstructured.Unstructured) (health, message string, err error) {
	// As in Argo CD, no health check is asked about what is being deleted.
	if object.GetDeletionTimestamp() != nil {
		return "Progressing", "Pending deletion", nil
	}
	kind := object.GroupVersionKind()
	script, found := a[healthKey(kind.Group, kind.Kind)]
	if !found {
		return "", "", fmt.Errorf("there is no health check for %s", object.GetKind())
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	// Argo CD opens hardly more than these, so a script that needs more fails here first.
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return "", "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	answer, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return "", "", fmt.Errorf("the health check returns no table, but %s", state.Get(-1).Type())
	}
	health, message = lua.LVAsString(answer.RawGetString("status")), lua.LVAsString(answer.RawGetString("message"))
	if !slices.Contains(healths, health) {
		return "", "", fmt.Errorf("%q is none of %s", health, strings.Join(healths, ", "))
	}
	return health, message, nil
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		list := state.NewTable()
		for _, item := range value {
			list.Append(luaValue(state, item))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for name, item := range value {
			table.RawSetString(name, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}
