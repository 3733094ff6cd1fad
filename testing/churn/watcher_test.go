package main

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// told makes a watcher that was told these: "TYPE VALUE REVISION", of one object.
func told(lines ...string) *watcher {
	w := &watcher{seen: map[event]uint64{}}
	for _, line := range lines {
		var kind, value, revision string
		fmt.Sscan(line, &kind, &value, &revision)
		item := &unstructured.Unstructured{Object: map[string]any{}}
		item.SetName(prefix + "1")
		item.SetAnnotations(map[string]string{counter: value})
		item.SetResourceVersion(revision)
		w.take(apiwatch.EventType(kind), item)
	}
	return w
}

func TestTheJudgeOfWatchers(t *testing.T) {
	writes := []write{
		{name: prefix + "1", value: 1, revision: 5},
		{name: prefix + "1", value: 2, revision: 7},
		{name: prefix + "1", value: 2, revision: 7, deletes: true},
	}
	all := []string{"ADDED 1 5", "MODIFIED 2 7", "DELETED 2 9"}
	cases := map[string]struct {
		told  []string
		gaps  []gap
		wrong string
	}{
		"all of it":              {told: all},
		"a bookmark":             {told: append(all, "BOOKMARK 0 9")},
		"one was lost":           {told: []string{all[0], all[2]}, wrong: "was not told"},
		"the deletion was lost":  {told: all[:2], wrong: "was not told"},
		"one came twice":         {told: append(all, "MODIFIED 2 11"), wrong: "twice"},
		"out of order":           {told: []string{all[1], all[0], all[2]}, wrong: "at 5 after 7"},
		"at another revision":    {told: []string{all[0], "MODIFIED 2 8", all[2]}, wrong: "was told at 8"},
		"a gap has swallowed it": {told: []string{all[0], all[2]}, gaps: []gap{{5, 8}}},
		"a gap before it":        {told: all[:2], gaps: []gap{{1, 6}}, wrong: "was not told"},
		"a gap of other writes":  {told: []string{all[0], all[2]}, gaps: []gap{{7, 8}}, wrong: "was not told"},
	}
	for name, one := range cases {
		w := told(one.told...)
		w.gaps = one.gaps
		_, _, err := w.compare(writes)
		switch {
		case one.wrong == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case one.wrong != "" && (err == nil || !strings.Contains(err.Error(), one.wrong)):
			t.Errorf("%s: expected %q, found %v", name, one.wrong, err)
		}
	}
}
