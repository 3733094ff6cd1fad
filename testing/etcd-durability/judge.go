package main

import (
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// judge says what is wrong, a line for each problem.
func judge(attempts []attempt, history, live []*clientv3.Event, keys []*mvccpb.KeyValue, last int64) []string {
	var problems []string
	problem := func(format string, values ...any) { problems = append(problems, fmt.Sprintf(format, values...)) }

	byRevision := map[int64][]*clientv3.Event{}
	revision := int64(1)
	for _, event := range history {
		at := event.Kv.ModRevision
		if at < revision {
			problem("the history goes back from revision %d to %d", revision, at)
		}
		for missing := revision + 1; missing < at; missing++ {
			problem("revision %d has no event", missing)
		}
		revision = max(revision, at)
		byRevision[at] = append(byRevision[at], event)
	}
	if revision != last {
		problem("the history ends at revision %d, the last write was %d", revision, last)
	}
	judgeAttempts(attempts, byRevision, problem)
	judgeWatcher(history, live, problem)
	judgeKeys(history, keys, problem)
	return problems
}

// judgeAttempts compares what was tried with what happened.
func judgeAttempts(attempts []attempt, byRevision map[int64][]*clientv3.Event, problem func(string, ...any)) {
	byValue := map[string]int{}
	acknowledged := map[int64]int{}
	for number, one := range attempts {
		for _, change := range one.changes {
			if !change.isDelete {
				byValue[change.value] = number
			}
		}
		if at := one.acknowledged; at > 0 {
			if _, again := acknowledged[at]; again {
				problem("revision %d was acknowledged twice", at)
			}
			acknowledged[at] = number
			if len(byRevision[at]) == 0 {
				problem("revision %d was acknowledged for %v, and is lost", at, one.changes)
			}
		}
	}
	happened := map[int]int64{}
	exists := map[string]bool{}
	for _, at := range slices.Sorted(maps.Keys(byRevision)) {
		events := byRevision[at]
		number, known := byValue[string(events[0].Kv.Value)]
		if !known || !same(attempts[number].changes, events, exists) {
			problem("revision %d is what nobody wrote: %v", at, describe(events))
		} else if before, again := happened[number]; again {
			problem("%v happened at revision %d and again at %d", attempts[number].changes, before, at)
		} else if said := attempts[number].acknowledged; said > 0 && said != at {
			problem("%v was acknowledged at revision %d, but is at %d", attempts[number].changes, said, at)
		}
		happened[number] = at
		for _, event := range events {
			exists[string(event.Kv.Key)] = event.Type == clientv3.EventTypePut
		}
	}
}

// same tells whether events are what changes make; the deletion of what is not there makes none.
func same(changes []change, events []*clientv3.Event, exists map[string]bool) bool {
	for _, change := range changes {
		if change.isDelete && !exists[change.key] {
			continue
		}
		if len(events) == 0 {
			return false
		}
		event := events[0]
		events = events[1:]
		isDelete := event.Type == clientv3.EventTypeDelete
		if string(event.Kv.Key) != change.key || isDelete != change.isDelete {
			return false
		}
		if !isDelete && string(event.Kv.Value) != change.value {
			return false
		}
	}
	return len(events) == 0
}

// judgeWatcher compares a watcher that lived through all kills with one that came at the end.
func judgeWatcher(history, live []*clientv3.Event, problem func(string, ...any)) {
	if len(history) != len(live) {
		problem("the watcher saw %d events, not %d", len(live), len(history))
	}
	for number := range min(len(history), len(live)) {
		if one, other := describe(history[number:number+1]), describe(live[number:number+1]); one != other {
			problem("event %d is %s, but the watcher saw %s", number, one, other)
			return
		}
	}
}

// judgeKeys replays the history.
func judgeKeys(history []*clientv3.Event, keys []*mvccpb.KeyValue, problem func(string, ...any)) {
	state := map[string]*mvccpb.KeyValue{}
	for _, event := range history {
		key := string(event.Kv.Key)
		before := state[key]
		if (event.PrevKv == nil) != (before == nil) ||
			before != nil && (event.PrevKv.ModRevision != before.ModRevision || event.PrevKv.Version != before.Version) {
			problem("revision %d says that %q was %v before, but it was %v", event.Kv.ModRevision, key, event.PrevKv, before)
		}
		if event.Type == clientv3.EventTypeDelete {
			delete(state, key)
			continue
		}
		version, created := int64(1), event.Kv.ModRevision
		if before != nil {
			version, created = before.Version+1, before.CreateRevision
		}
		if event.Kv.Version != version || event.Kv.CreateRevision != created {
			problem("revision %d of %q has version %d, created at %d, not %d and %d", event.Kv.ModRevision, key,
				event.Kv.Version, event.Kv.CreateRevision, version, created)
		}
		state[key] = event.Kv
	}
	if len(keys) != len(state) {
		problem("there are %d keys, not %d", len(keys), len(state))
	}
	for _, found := range keys {
		expected := state[string(found.Key)]
		if expected == nil || expected.ModRevision != found.ModRevision || string(expected.Value) != string(found.Value) {
			problem("key %q is %v, not %v", found.Key, found, expected)
		}
	}
}

func describe(events []*clientv3.Event) string {
	text := ""
	for _, event := range events {
		text += fmt.Sprintf("[%s %s=%s at %d]", event.Type, event.Kv.Key, event.Kv.Value, event.Kv.ModRevision)
	}
	return text
}

func summary(attempts []attempt, history []*clientv3.Event, last int64) string {
	acknowledged, tried := 0, len(attempts)
	for _, one := range attempts {
		if one.acknowledged > 0 {
			acknowledged++
		}
	}
	return fmt.Sprintf("%d writes acknowledged, %d of unknown outcome, of which %d happened; revisions 2 to %d, %d events",
		acknowledged, tried-acknowledged, int(last)-1-acknowledged, last, len(history))
}
