package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// gap is what a watcher was not told, because it had to list again: revisions after `from`, up to `to`.
type gap struct{ from, to uint64 }

// event is what a watcher was told about a value of an object.
type event struct {
	name    string
	value   int64
	deletes bool
}

// watcher follows one kind of object, as clients do that must miss nothing.
type watcher struct {
	kind        string
	client      dynamic.ResourceInterface
	connections int
	gaps        []gap

	mutex    sync.Mutex
	revision uint64 // of what was seen last
	seen     map[event]uint64
	wrong    error // the first thing that was
}

// watch begins with what is there now.
func watch(ctx context.Context, client dynamic.ResourceInterface) (*watcher, error) {
	w := &watcher{client: client, seen: map[event]uint64{}}
	revision, err := w.list(ctx)
	if err != nil {
		return nil, err
	}
	w.revision = revision
	go func() {
		for {
			if err := w.follow(ctx); err != nil {
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
	return w, nil
}

func (w *watcher) list(ctx context.Context) (uint64, error) {
	list, err := w.client.List(ctx, v1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.GetResourceVersion(), 10, 64)
}

// follow watches until the connection ends.
func (w *watcher) follow(ctx context.Context) error {
	options := v1.ListOptions{ResourceVersion: strconv.FormatUint(w.last(), 10), AllowWatchBookmarks: true}
	stream, err := w.client.Watch(ctx, options)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return w.listAgain(ctx)
	}
	if err != nil {
		return err
	}
	defer stream.Stop()
	w.mutex.Lock()
	w.connections++
	w.mutex.Unlock()
	for one := range stream.ResultChan() {
		if one.Type == apiwatch.Error {
			err := apierrors.FromObject(one.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return w.listAgain(ctx)
			}
			return err
		}
		if item, ok := one.Object.(*unstructured.Unstructured); ok {
			w.take(one.Type, item)
		}
	}
	return errors.New("the stream ended")
}

func (w *watcher) listAgain(ctx context.Context) error {
	revision, err := w.list(ctx)
	if err != nil {
		return err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.gaps = append(w.gaps, gap{from: w.revision, to: revision})
	w.revision = revision
	return nil
}

func (w *watcher) last() uint64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.revision
}

func (w *watcher) take(kind apiwatch.EventType, item *unstructured.Unstructured) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	revision, err := strconv.ParseUint(item.GetResourceVersion(), 10, 64)
	if err != nil {
		w.blame(fmt.Errorf("resourceVersion: %w", err))
		return
	}
	isBookmark := kind == apiwatch.Bookmark
	if revision < w.revision || revision == w.revision && !isBookmark {
		w.blame(fmt.Errorf("%s %s at %d after %d", kind, item.GetName(), revision, w.revision))
	}
	w.revision = revision
	if isBookmark || !strings.HasPrefix(item.GetName(), prefix) {
		return
	}
	value, err := strconv.ParseInt(item.GetAnnotations()[counter], 10, 64)
	if err != nil {
		w.blame(fmt.Errorf("%s: value: %w", item.GetName(), err))
	}
	one := event{name: item.GetName(), value: value, deletes: kind == apiwatch.Deleted}
	if earlier := w.seen[one]; earlier != 0 {
		w.blame(fmt.Errorf("%v twice: at %d and %d", one, earlier, revision))
	}
	w.seen[one] = revision
}

// blame keeps the first mistake.
func (w *watcher) blame(err error) {
	if w.wrong == nil {
		w.wrong = err
	}
}

// finish waits until the last write was told, and compares all of them.
func (w *watcher) finish(writes []write) (told, excused int, err error) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		told, excused, err = w.compare(writes)
		if err == nil || time.Now().After(deadline) {
			return told, excused, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// compare tells how many events there were, and how many writes a gap may have swallowed.
func (w *watcher) compare(writes []write) (told, excused int, err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.wrong != nil {
		return len(w.seen), 0, w.wrong
	}
	for _, one := range writes {
		revision, isSeen := w.seen[event{one.name, one.value, one.deletes}]
		switch {
		case isSeen && !one.deletes && revision != one.revision:
			return len(w.seen), excused, fmt.Errorf("%v was told at %d", one, revision)
		case isSeen:
		case w.isExcused(one):
			excused++
		default:
			return len(w.seen), excused, fmt.Errorf("%v was not told", one)
		}
	}
	return len(w.seen), excused, nil
}

// isExcused tells whether a write may have fallen into a gap.
func (w *watcher) isExcused(one write) bool {
	for _, gap := range w.gaps {
		if one.revision <= gap.to && (one.deletes || gap.from < one.revision) {
			return true
		}
	}
	return false
}
