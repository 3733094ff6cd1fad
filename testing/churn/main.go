// Writes objects through a Kubernetes API server while its store is interrupted, and looks whether anything was lost.
//
// Workers create, update, patch and delete ConfigMaps and custom resources, and watchers follow them. Promised at the end:
// every object is in the last state that was acknowledged; every acknowledged write was told to every watcher once and in
// order, unless the API server told the watcher to list again, which is counted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	kubeconfig    = flag.String("kubeconfig", "", "how to reach the API server")
	kubeContext   = flag.String("context", "", "the kubeconfig's context (default: its current one)")
	namespace     = flag.String("namespace", "churn", "where objects are written; must exist")
	writes        = flag.Int64("writes", 10_000, "writes to be acknowledged")
	workers       = flag.Int("workers", 16, "how many write at a time")
	objects       = flag.Int("objects", 40, "objects of each worker")
	watchers      = flag.Int("watchers", 3, "watchers of each kind of object")
	interruptions = flag.Int64("interruptions", 2, "how often the store is interrupted, evenly spread over the writes")
	interrupt     = flag.String("interrupt", "", "the command that interrupts it")
	sample        = flag.String("sample", "", "a command whose output ends each line of progress")
	patience      = flag.Duration("patience", 2*time.Minute, "how long the API server may refuse to answer")
	seed          = flag.Uint64("seed", 1, "of what is chosen at random")
)

// kinds are what is written: built in, and defined by a user.
var kinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"},
	{Group: "churn.storebench.dev", Version: "v1", Resource: "widgets"},
}

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "churn:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := connect()
	if err != nil {
		return err
	}
	history := &history{}
	var watching []*watcher
	for _, kind := range kinds {
		for range *watchers {
			one, err := watch(ctx, client.Resource(kind).Namespace(*namespace))
			if err != nil {
				return fmt.Errorf("watch %s: %w", kind.Resource, err)
			}
			one.kind = kind.Resource
			watching = append(watching, one)
		}
	}
	stop := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { report(history, stop) })
	background.Go(func() { interruptAll(history, stop) })

	var writing sync.WaitGroup
	begin := time.Now()
	failures := make(chan error, *workers)
	for number := range *workers {
		writing.Go(func() {
			if err := newWorker(number, client, history).work(ctx); err != nil {
				failures <- fmt.Errorf("worker %d: %w", number, err)
				history.fail.Store(true)
			}
		})
	}
	writing.Wait()
	close(stop)
	background.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	fmt.Printf("%d writes acknowledged in %.0f s, %d without an answer (%d of them had been done)\n",
		history.acknowledged.Load(), time.Since(begin).Seconds(), history.unanswered.Load(), history.doneAnyway.Load())
	if err := history.readBack(ctx, client); err != nil {
		return err
	}
	for _, one := range watching {
		told, excused, err := one.finish(history.of(one.kind))
		if err != nil {
			return fmt.Errorf("watcher of %s: %w", one.kind, err)
		}
		fmt.Printf("watcher of %s: %d events, each once and in order; connected %d times, told to list again %d times (%d writes)\n",
			one.kind, told, one.connections, len(one.gaps), excused)
	}
	return nil
}

func connect() (dynamic.Interface, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: *kubeconfig}
	if *kubeconfig == "" {
		rules = clientcmd.NewDefaultClientConfigLoadingRules()
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: *kubeContext}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit of the client's own
	return dynamic.NewForConfig(config)
}

// report prints a line each ten seconds.
func report(history *history, stop <-chan struct{}) {
	begin := time.Now()
	ticks := time.NewTicker(10 * time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
		}
		output := ""
		if *sample != "" {
			bytes, err := exec.Command("bash", "-c", *sample).Output()
			output = strings.TrimSpace(string(bytes))
			if err != nil {
				output = "no sample: " + err.Error()
			}
		}
		fmt.Printf("%4.0f s  %7d writes  %s\n", time.Since(begin).Seconds(), history.acknowledged.Load(), output)
	}
}

// interruptAll interrupts the store each time when another part of the writes has been done.
func interruptAll(history *history, stop <-chan struct{}) {
	for number := range *interruptions {
		due := *writes * (number + 1) / (*interruptions + 1)
		for history.acknowledged.Load() < due {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		output, err := exec.Command("bash", "-c", *interrupt).CombinedOutput()
		fmt.Printf("        interrupted after %d writes %s\n", history.acknowledged.Load(), output)
		if err != nil {
			fmt.Fprintln(os.Stderr, "churn: -interrupt:", err)
			history.fail.Store(true)
		}
	}
}

// history is what was acknowledged.
type history struct {
	acknowledged, unanswered, doneAnyway atomic.Int64
	fail                                 atomic.Bool // nobody needs to go on

	mutex  sync.Mutex
	writes []write
	owners []*worker
}

// write is one that was acknowledged: the value is the object's own count of its writes.
type write struct {
	kind, name string
	value      int64
	revision   uint64 // of a deletion, whose own the API server does not tell: the one before
	deletes    bool
}

func (h *history) add(one write) {
	h.acknowledged.Add(1)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.writes = append(h.writes, one)
}

func (h *history) of(kind string) (writes []write) {
	for _, one := range h.writes {
		if one.kind == kind {
			writes = append(writes, one)
		}
	}
	return writes
}
