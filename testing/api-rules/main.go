// Command api-rules says what a Kubernetes API server would say to storebench's definitions and to objects of theirs, by
// the API server's own code and without a cluster.
//
//	go run . CRD_DIRECTORY [FILE…]
//
// It prints a line for each definition and file, and ends with status 1 if it refused any.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: api-rules CRD_DIRECTORY [FILE…]")
		os.Exit(2)
	}
	rules, err := Load(os.Args[1])
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	refused := false
	for _, file := range os.Args[2:] {
		text, err := os.ReadFile(file)
		if err == nil {
			err = rules.CreateFile(text)
		}
		if err == nil {
			fmt.Printf("%s accepted\n", file)
			continue
		}
		refused = true
		fmt.Printf("%s refused: %s\n", file, OneLine(err))
	}
	if refused {
		os.Exit(1)
	}
}

// Load reads the definitions of a directory; an error names the first that an API server would refuse.
func Load(directory string) (Rules, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no definitions", directory)
	}
	var rules Rules
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue // lists the definitions for kubectl, and is none
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		kind, err := NewKind(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rules = append(rules, kind)
	}
	return rules, nil
}

func newReader(text []byte) *bufio.Reader {
	return bufio.NewReader(bytes.NewReader(text))
}
