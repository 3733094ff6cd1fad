// Linearizability reads the history of a register store, one operation a line as JSON, and asks porcupine whether some
// order of the operations explains every answer. Each key is a register of its own.
//
//	linearizability [-timeout 60s] [-picture history.html] HISTORY
//
// Exit code 0: linearizable. 1: it is not, or that was not found out in time; the key is named, and -picture draws it.
// 2: the history cannot be read; the line is named.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long one key may take to be checked")
	picture := flag.String("picture", "", "where to draw a key that is not linearizable, as HTML")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: linearizability [-timeout 60s] [-picture history.html] HISTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(run(flag.Arg(0), *timeout, *picture))
}

func run(path string, timeout time.Duration, picture string) int {
	file, err := os.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer file.Close()
	history, err := read(file)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		return 2
	}
	failed := 0
	for _, key := range history.keys() {
		result, information := porcupine.CheckOperationsVerbose(register, history.of[key], timeout)
		if result == porcupine.Ok {
			continue
		}
		failed++
		what := "is not linearizable"
		if result == porcupine.Unknown {
			what = fmt.Sprintf("could not be checked within %s; fewer operations a key are easier", timeout)
		}
		fmt.Printf("key %q, %d operations: %s\n", key, len(history.of[key]), what)
		if picture != "" && failed == 1 {
			if err := porcupine.VisualizePath(register, information, picture); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	fmt.Printf("%d operations on %d keys, %d of unknown outcome; ", history.operations, len(history.of), history.unknown)
	if failed > 0 {
		fmt.Printf("%d keys failed\n", failed)
		return 1
	}
	fmt.Println("linearizable")
	return 0
}
