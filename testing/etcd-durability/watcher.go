package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// events are what a watcher has seen so far.
type events struct {
	mutex sync.Mutex
	seen  []*clientv3.Event
	err   error
}

// watch sees everything from the first revision on, as long as the client lives.
func watch(ctx context.Context, client *clientv3.Client) *events {
	all := &events{}
	channel := client.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithPrevKV())
	go func() {
		for answer := range channel {
			all.mutex.Lock()
			all.seen = append(all.seen, answer.Events...)
			if err := answer.Err(); err != nil {
				all.err = err
			}
			all.mutex.Unlock()
		}
	}()
	return all
}

func (e *events) list() []*clientv3.Event {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.seen
}

// until waits for the event of a revision.
func (e *events) until(ctx context.Context, revision int64) error {
	for {
		e.mutex.Lock()
		seen, err := len(e.seen), e.err
		reached := int64(0)
		if seen > 0 {
			reached = e.seen[seen-1].Kv.ModRevision
		}
		e.mutex.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("a watcher at revision %d: %w", reached, err)
		case reached >= revision:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("a watcher came to revision %d of %d only", reached, revision)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
