// Etcd-durability kills a server that speaks etcd's API with SIGKILL, again and again, under load, and then looks whether it
// kept its word:
//
//   - no acknowledged write is lost, and none is found at another revision than its acknowledgement said;
//   - no revision is used twice, and none is left out;
//   - a watcher that was there all the time saw every event once and in order;
//   - the keys are what the history says;
//   - all members of a group have the same.
//
// Usage:
//
//	etcd-durability [-kills 200] [-writers 20] [-seed 1] [-members 1] SERVER
//
// SERVER is the path of etcd or of a program that takes its flags. Of a group one member is killed, and sometimes all of them. Everything happens on loopback and in a temporary folder.
// Exit code 0: it kept its word. 1: it did not, and the lines before say how. 2: it could not be tested.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Problems beyond this many are counted, and not told.
const problemsTold = 20

func main() {
	kills := flag.Int("kills", 200, "how often the server is killed")
	writers := flag.Int("writers", 20, "how many clients write")
	seed := flag.Uint64("seed", 1, "of what is written and of when the server is killed")
	members := flag.Int("members", 1, "how many servers are a group")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: etcd-durability [-kills 200] [-writers 20] [-seed 1] [-members 1] SERVER")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 || *kills < 1 || *writers < 1 || *members < 1 {
		flag.Usage()
		os.Exit(2)
	}
	problems, err := run(flag.Arg(0), *members, *kills, *writers, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd-durability:", err)
		os.Exit(2)
	}
	for _, problem := range problems[:min(len(problems), problemsTold)] {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		fmt.Printf("%d problems\n", len(problems))
		os.Exit(1)
	}
	fmt.Println("it kept its word")
}

func run(program string, members, kills, writers int, seed uint64) ([]string, error) {
	group, err := newGroup(program, members)
	if err != nil {
		return nil, err
	}
	defer group.remove()
	if err := group.start(group.members...); err != nil {
		return nil, err
	}
	client, err := connect(group.endpoints()...)
	if err != nil {
		return nil, err
	}
	defer client.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	live := watch(ctx, client)

	journal := &journal{}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for number := range writers {
		// A client of its own for each, so that a broken connection hinders no other.
		// By turns through every member: what is acknowledged by one counts for all.
		writer, err := connect(group.members[number%members].clientURL)
		if err != nil {
			return nil, err
		}
		defer writer.Close()
		writing.Go(func() { write(writer, journal, number, rand.New(rand.NewPCG(seed, uint64(number))), stop) })
	}
	err = killAgainAndAgain(group, kills, rand.New(rand.NewPCG(seed, 1<<32)), journal)
	close(stop)
	writing.Wait()
	if err != nil {
		return nil, err
	}
	problems, err := examine(ctx, client, live, journal)
	if err != nil {
		return nil, err
	}
	different, err := group.compare(ctx, client)
	return append(problems, different...), err
}

func connect(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          10 * time.Second,
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		// Or a write that was tried twice would be told as one.
		MaxUnaryRetries: 1,
		Logger:          zap.NewNop(),
	})
}

func killAgainAndAgain(group *group, kills int, random *rand.Rand, journal *journal) error {
	for kill := 1; kill <= kills; kill++ {
		before := journal.acknowledgedCount()
		// Also in the middle of its start, and in the middle of the first writes after that.
		time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
		if err := group.killSome(random); err != nil {
			return fmt.Errorf("after kill %d: %w", kill, err)
		}
		if kill%10 == 0 || kill == kills {
			fmt.Fprintf(os.Stderr, "%d of %d kills, %d writes acknowledged\n", kill, kills, journal.acknowledgedCount())
		}
		if kill%20 == 0 && journal.acknowledgedCount() == before {
			// Let it serve for a while, or nothing is tested.
			time.Sleep(2 * time.Second)
		}
	}
	if journal.acknowledgedCount() == 0 {
		return fmt.Errorf("no write was acknowledged, which proves nothing; give it fewer kills or a quicker machine")
	}
	return nil
}

func examine(ctx context.Context, client *clientv3.Client, live *events, journal *journal) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	// Everything that was written has a smaller revision than this.
	last, err := client.Put(ctx, "the end", "")
	if err != nil {
		return nil, fmt.Errorf("the last write: %w", err)
	}
	journal.add(attempt{acknowledged: last.Header.Revision, changes: []change{{key: "the end"}}})
	history := watch(ctx, client)
	for _, seen := range []*events{history, live} {
		if err := seen.until(ctx, last.Header.Revision); err != nil {
			return nil, err
		}
	}
	keys, err := client.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(last.Header.Revision))
	if err != nil {
		return nil, fmt.Errorf("reading all keys: %w", err)
	}
	problems := judge(journal.attempts, history.list(), live.list(), keys.Kvs, last.Header.Revision)
	fmt.Println(summary(journal.attempts, history.list(), last.Header.Revision))
	return problems, nil
}
