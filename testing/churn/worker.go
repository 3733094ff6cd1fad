package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	prefix  = "object-" // of the names of objects that are ours
	counter = "churn.storebench.dev/value"
)

// object is one that only its worker writes, and so its state is known.
type object struct {
	kind, name string
	client     dynamic.ResourceInterface
	exists     bool
	value      int64 // of the last write, also of a deleted object: counts on
	revision   string
}

type worker struct {
	history *history
	random  *rand.Rand
	objects []*object
}

func newWorker(number int, client dynamic.Interface, history *history) *worker {
	w := &worker{history: history, random: rand.New(rand.NewPCG(*seed, uint64(number)))}
	for index := range *objects {
		kind := kinds[index%len(kinds)]
		w.objects = append(w.objects, &object{
			kind:   kind.Resource,
			name:   fmt.Sprintf("%s%d-%d", prefix, number, index),
			client: client.Resource(kind).Namespace(*namespace),
		})
	}
	history.mutex.Lock()
	defer history.mutex.Unlock()
	history.owners = append(history.owners, w)
	return w
}

func (w *worker) work(ctx context.Context) error {
	for w.history.acknowledged.Load() < *writes && !w.history.fail.Load() {
		one := w.objects[w.random.IntN(len(w.objects))]
		if err := w.write(ctx, one); err != nil {
			return fmt.Errorf("%s/%s: %w", one.kind, one.name, err)
		}
	}
	return nil
}

// write does one write, and finds out what has become of it if there is no answer.
func (w *worker) write(ctx context.Context, one *object) error {
	next := *one
	next.exists, next.value = true, one.value+1
	var result *unstructured.Unstructured
	var err error
	switch choice := w.random.IntN(10); {
	case !one.exists:
		result, err = one.client.Create(ctx, w.content(one, next.value), v1.CreateOptions{})
	case choice == 0:
		next.exists, next.value = false, one.value
		err = one.client.Delete(ctx, one.name, v1.DeleteOptions{})
	case choice < 3:
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, counter, next.value)
		result, err = one.client.Patch(ctx, one.name, types.MergePatchType, []byte(patch), v1.PatchOptions{})
	default:
		content := w.content(one, next.value)
		content.SetResourceVersion(one.revision)
		result, err = one.client.Update(ctx, content, v1.UpdateOptions{})
	}
	if err != nil {
		return w.resolve(ctx, one, &next, err)
	}
	acknowledged := write{kind: one.kind, name: one.name, value: next.value, deletes: !next.exists}
	if result != nil {
		next.revision = result.GetResourceVersion()
	}
	if acknowledged.revision, err = strconv.ParseUint(next.revision, 10, 64); err != nil {
		return fmt.Errorf("resourceVersion: %w", err)
	}
	w.history.add(acknowledged)
	*one = next
	return nil
}

// resolve asks for an object until there is an answer. Either the write was done or it was not.
func (w *worker) resolve(ctx context.Context, one, next *object, cause error) error {
	w.history.unanswered.Add(1)
	deadline := time.Now().Add(*patience)
	for {
		found, err := one.client.Get(ctx, one.name, v1.GetOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			before, after := one.is(found, err), next.is(found, err)
			switch {
			case after:
				w.history.doneAnyway.Add(1)
				*one = *next
			case !before:
				return fmt.Errorf("after %q: expected value %d (%t) or %d (%t), found %v", cause, one.value, one.exists, next.value, next.exists, found)
			case apierrors.IsConflict(cause) || apierrors.IsAlreadyExists(cause) || apierrors.IsNotFound(cause) || apierrors.IsInvalid(cause):
				return fmt.Errorf("refused, though nobody else writes: %w", cause)
			}
			if one.exists {
				one.revision = found.GetResourceVersion()
			}
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no answer for %v: %w", *patience, errors.Join(cause, err))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// is tells whether an answer shows the object in this state.
func (o *object) is(found *unstructured.Unstructured, err error) bool {
	if err != nil {
		return !o.exists
	}
	return o.exists && found.GetAnnotations()[counter] == strconv.FormatInt(o.value, 10)
}

func (w *worker) content(one *object, value int64) *unstructured.Unstructured {
	filling := map[string]any{"filling": strings.Repeat("x", 200+w.random.IntN(800))}
	content := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": filling}
	if one.kind == "widgets" {
		content = map[string]any{"apiVersion": "churn.storebench.dev/v1", "kind": "Widget", "spec": filling}
	}
	result := &unstructured.Unstructured{Object: content}
	result.SetName(one.name)
	result.SetAnnotations(map[string]string{counter: strconv.FormatInt(value, 10)})
	return result
}

// readBack compares all objects with what was acknowledged last.
func (h *history) readBack(ctx context.Context, client dynamic.Interface) error {
	found := map[string]*unstructured.Unstructured{}
	for _, kind := range kinds {
		list, err := client.Resource(kind).Namespace(*namespace).List(ctx, v1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for index := range list.Items {
			if name := list.Items[index].GetName(); strings.HasPrefix(name, prefix) {
				found[kind.Resource+"/"+name] = &list.Items[index]
			}
		}
	}
	there := 0
	for _, worker := range h.owners {
		for _, one := range worker.objects {
			key := one.kind + "/" + one.name
			item := found[key]
			if (item != nil) != one.exists || item != nil && !one.is(item, nil) {
				return fmt.Errorf("lost: %s: acknowledged value %d (exists: %t), found %v", key, one.value, one.exists, item)
			}
			if item != nil {
				there++
			}
		}
	}
	if there != len(found) {
		return fmt.Errorf("%d objects are there, %d were written", len(found), there)
	}
	fmt.Printf("%d objects read back: each as it was acknowledged last\n", there)
	return nil
}
