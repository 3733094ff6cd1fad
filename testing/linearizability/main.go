// Linearizability reads a history, one operation a line as JSON, and says whether some order of the operations explains every answer.
// Each key is a register, a list or a set of its own, by what is done to it. Porcupine searches for the order of a register's and a set's
// operations; a list has only one (list.go).
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
	timeout := flag.Duration("timeout", time.Minute, "how long the search may take for one key")
	picture := flag.String("picture", "", "where to draw a register or a set that is not linearizable, as HTML")
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
		problem := history.check(key, timeout, picture)
		if problem == "" {
			continue
		}
		failed++
		fmt.Printf("key %q, %d operations: %s\n", key, len(history.of[key]), problem)
	}
	fmt.Printf("%d operations on %d keys, %d of unknown outcome; ", history.operations, len(history.of), history.unknown)
	if failed > 0 {
		fmt.Printf("%d keys failed\n", failed)
		return 1
	}
	fmt.Println("linearizable")
	return 0
}

// check says what is wrong with one key, or nothing. The picture is of the last key of which one can be drawn.
func (h *history) check(key string, timeout time.Duration, picture string) string {
	operations := h.of[key]
	var model porcupine.Model
	switch h.kind[key] {
	case "list":
		if err := checkList(operations); err != nil {
			return "is not linearizable: " + err.Error()
		}
		return ""
	case "register":
		model = register
	default:
		model = set
	}
	result, information := porcupine.CheckOperationsVerbose(model, operations, timeout)
	if result == porcupine.Ok {
		return ""
	}
	if picture != "" {
		if err := porcupine.VisualizePath(model, information, picture); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if result == porcupine.Unknown {
		return fmt.Sprintf("could not be checked within %s; fewer operations a key are easier", timeout)
	}
	return "is not linearizable"
}
