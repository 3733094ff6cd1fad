package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	writeTimeout  = 3 * time.Second
	keysPerWriter = 30
)

// change is what a write does to one key.
type change struct {
	key string
	// value is unique among all writes.
	value    string
	isDelete bool
}

// attempt is a write that was tried.
type attempt struct {
	changes []change
	// acknowledged is the revision that the server said, 0 if nobody knows whether it happened.
	acknowledged int64
}

// journal is what all writers tried.
type journal struct {
	mutex        sync.Mutex
	attempts     []attempt
	acknowledged int
}

func (j *journal) add(one attempt) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.attempts = append(j.attempts, one)
	if one.acknowledged > 0 {
		j.acknowledged++
	}
}

func (j *journal) acknowledgedCount() int {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.acknowledged
}

// write puts, deletes, and does both in transactions, on keys that nobody else writes.
func write(client *clientv3.Client, journal *journal, writer int, random *rand.Rand, stop <-chan struct{}) {
	for sequence := 0; ; sequence++ {
		select {
		case <-stop:
			return
		default:
		}
		one := attempt{}
		var operations []clientv3.Op
		first := random.IntN(keysPerWriter)
		for number := range 1 + 2*random.IntN(2) {
			key := fmt.Sprintf("w%d/%d", writer, (first+number)%keysPerWriter)
			value := fmt.Sprintf("%d-%d-%d", writer, sequence, number)
			// Never alone: the deletion of what is not there makes no revision.
			isDelete := number == 2 && random.IntN(2) == 0
			one.changes = append(one.changes, change{key: key, value: value, isDelete: isDelete})
			if isDelete {
				operations = append(operations, clientv3.OpDelete(key))
			} else {
				operations = append(operations, clientv3.OpPut(key, value))
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		answer, err := client.Txn(ctx).Then(operations...).Commit()
		cancel()
		if err == nil {
			one.acknowledged = answer.Header.Revision
		} else {
			time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
		}
		journal.add(one)
	}
}
