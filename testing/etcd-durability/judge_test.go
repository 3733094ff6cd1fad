package main

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func put(key, value string, created, revision, version int64, before *mvccpb.KeyValue) *clientv3.Event {
	kv := &mvccpb.KeyValue{
		Key: []byte(key), Value: []byte(value), CreateRevision: created, ModRevision: revision, Version: version,
	}
	return &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv, PrevKv: before}
}

func deletion(key string, revision int64, before *mvccpb.KeyValue) *clientv3.Event {
	kv := &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}
	return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: kv, PrevKv: before}
}

// world is a history without fault: a put, a put with a deletion, a put of unknown outcome that happened.
type world struct {
	attempts []attempt
	history  []*clientv3.Event
	live     []*clientv3.Event
	keys     []*mvccpb.KeyValue
	last     int64
}

func faultless() *world {
	first := put("a", "1", 2, 2, 1, nil)
	second := put("b", "2", 3, 3, 1, nil)
	third := put("b", "3", 3, 4, 2, second.Kv)
	history := []*clientv3.Event{first, second, deletion("a", 3, first.Kv), third}
	return &world{
		attempts: []attempt{
			{changes: []change{{key: "a", value: "1"}}, acknowledged: 2},
			{changes: []change{{key: "b", value: "2"}, {key: "a", isDelete: true}}, acknowledged: 3},
			// Nothing is there any more that it could delete.
			{changes: []change{{key: "b", value: "3"}, {key: "a", isDelete: true}}},
			{changes: []change{{key: "b", value: "4"}}},
		},
		history: history,
		live:    append([]*clientv3.Event{}, history...),
		keys:    []*mvccpb.KeyValue{third.Kv},
		last:    4,
	}
}

func TestFaultlessHistory(t *testing.T) {
	w := faultless()
	if problems := judge(w.attempts, w.history, w.live, w.keys, w.last); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestFaults(t *testing.T) {
	for name, one := range map[string]struct {
		expected string
		spoil    func(*world)
	}{
		"an acknowledged write is lost": {"acknowledged for", func(w *world) {
			w.history, w.live, w.last = w.history[:1], w.live[:1], 2
		}},
		"a revision is acknowledged twice": {"acknowledged twice", func(w *world) { w.attempts[1].acknowledged = 2 }},
		"a write is at another revision":   {"acknowledged at revision 5", func(w *world) { w.attempts[0].acknowledged = 5 }},
		"a value that nobody wrote":        {"nobody wrote", func(w *world) { w.history[0].Kv.Value = []byte("9") }},
		"half a transaction":               {"nobody wrote", func(w *world) { w.history = append(w.history[:2:2], w.history[3]) }},
		"a write that happened twice": {"and again at 4", func(w *world) {
			w.history[3] = put("a", "1", 4, 4, 1, nil)
		}},
		"a hole in the revisions": {"has no event", func(w *world) { w.history[3].Kv.ModRevision, w.last = 5, 5 }},
		"the history goes back":   {"goes back", func(w *world) { w.history[1].Kv.ModRevision = 1 }},
		"the end is missing":      {"the last write was 9", func(w *world) { w.last = 9 }},
		"the watcher missed one":  {"saw 3 events", func(w *world) { w.live = w.live[1:] }},
		"the watcher saw another": {"but the watcher saw", func(w *world) { w.live[0] = put("a", "9", 2, 2, 1, nil) }},
		"a key is missing":        {"there are 0 keys", func(w *world) { w.keys = nil }},
		"a key is old":            {`key "b" is`, func(w *world) { w.keys[0] = w.history[1].Kv }},
		"a wrong version":         {"has version 7", func(w *world) { w.history[3].Kv.Version = 7 }},
		"a wrong previous value":  {"was", func(w *world) { w.history[3].PrevKv = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := faultless()
			one.spoil(w)
			problems := strings.Join(judge(w.attempts, w.history, w.live, w.keys, w.last), "\n")
			if !strings.Contains(problems, one.expected) {
				t.Errorf("no %q in:\n%s", one.expected, problems)
			}
		})
	}
}
