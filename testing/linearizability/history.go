package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/anishathalye/porcupine"
)

// line is one operation as it is written down. A missing value is a key without one; a missing end is an operation of
// which nobody knows whether it happened.
type line struct {
	Client     *int    `json:"client"`
	Key        *string `json:"key"`
	Operation  string  `json:"op"`
	Value      *string `json:"value"`
	Level      string  `json:"level"`
	StartNanos *int64  `json:"start_nanos"`
	EndNanos   *int64  `json:"end_nanos"`
}

// history is what happened to each key.
type history struct {
	of         map[string][]porcupine.Operation
	operations int
	unknown    int
}

func (h *history) keys() []string {
	keys := make([]string, 0, len(h.of))
	for key := range h.of {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// request is what a client asked for; put is nil for a get.
type request struct {
	put *string
}

func read(from io.Reader) (*history, error) {
	all := &history{of: map[string][]porcupine.Operation{}}
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for number := 1; scanner.Scan(); number++ {
		var one line
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if err := all.add(&one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	if all.operations == 0 {
		return nil, fmt.Errorf("the history is empty, which proves nothing")
	}
	return all, nil
}

func (h *history) add(one *line) error {
	if one.Client == nil || one.Key == nil || one.StartNanos == nil {
		return fmt.Errorf("client, key and start_nanos are needed")
	}
	if one.EndNanos != nil && *one.EndNanos < *one.StartNanos {
		return fmt.Errorf("it ended before it started")
	}
	var input request
	switch one.Operation {
	case "put":
		if one.Value == nil {
			return fmt.Errorf("a put needs a value")
		}
		input.put = one.Value
	case "get":
		// Levels that promise less are judged elsewhere.
		if one.Level != "linearizable" && one.Level != "lease" {
			return fmt.Errorf("level %q does not promise linearizability", one.Level)
		}
		if one.EndNanos == nil {
			return fmt.Errorf("a get without an answer says nothing; leave it out")
		}
	default:
		return fmt.Errorf("op %q is neither put nor get", one.Operation)
	}
	end := int64(math.MaxInt64)
	if one.EndNanos != nil {
		end = *one.EndNanos
	} else {
		h.unknown++
	}
	h.operations++
	h.of[*one.Key] = append(h.of[*one.Key], porcupine.Operation{
		ClientId: *one.Client,
		Input:    input,
		Call:     *one.StartNanos,
		Output:   one.Value,
		Return:   end,
	})
	return nil
}
