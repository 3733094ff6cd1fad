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

// line is one operation as it is written down. A missing value is a register without one; items are what a list or a set
// was found to hold; a missing end is an operation of which nobody knows whether it happened.
type line struct {
	Client     *int      `json:"client"`
	Key        *string   `json:"key"`
	Operation  string    `json:"op"`
	Value      *string   `json:"value"`
	Items      *[]string `json:"items"`
	Level      string    `json:"level"`
	StartNanos *int64    `json:"start_nanos"`
	EndNanos   *int64    `json:"end_nanos"`
}

// operation is what the name of one says: what its key is, and whether it only looks.
type operation struct {
	kind   string
	isRead bool
}

var operations = map[string]operation{
	"put":     {"register", false},
	"get":     {"register", true},
	"append":  {"list", false},
	"list":    {"list", true},
	"add":     {"set", false},
	"remove":  {"set", false},
	"members": {"set", true},
}

// history is what happened to each key, and what the key is.
type history struct {
	of         map[string][]porcupine.Operation
	kind       map[string]string
	appended   map[string]bool
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

// unknownEnd is when an operation ends of which nobody knows whether it happened.
const unknownEnd = math.MaxInt64

// request is what a client asked for.
type request struct {
	operation string
	value     string
}

func read(from io.Reader) (*history, error) {
	all := &history{of: map[string][]porcupine.Operation{}, kind: map[string]string{}, appended: map[string]bool{}}
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
	what, isKnown := operations[one.Operation]
	if !isKnown {
		return fmt.Errorf("op %q is none of put, get, append, list, add, remove and members", one.Operation)
	}
	if before, isThere := h.kind[*one.Key]; isThere && before != what.kind {
		return fmt.Errorf("key %q is a %s and cannot be a %s, too", *one.Key, before, what.kind)
	}
	input := request{operation: one.Operation}
	var output interface{}
	switch {
	case !what.isRead:
		if one.Value == nil {
			return fmt.Errorf("op %q needs a value", one.Operation)
		}
		input.value = *one.Value
		if one.Operation == "append" {
			where := *one.Key + "\x00" + *one.Value
			if h.appended[where] {
				return fmt.Errorf("%q is appended to %q a second time; each value must be appended once, so that lists tell the order", *one.Value, *one.Key)
			}
			h.appended[where] = true
		}
	// Levels that promise less are judged elsewhere.
	case one.Level != "linearizable" && one.Level != "lease":
		return fmt.Errorf("level %q does not promise linearizability", one.Level)
	case one.EndNanos == nil:
		return fmt.Errorf("op %q without an answer says nothing; leave it out", one.Operation)
	case what.kind == "register":
		output = one.Value
	case one.Items == nil:
		return fmt.Errorf("op %q needs items", one.Operation)
	case what.kind == "list":
		output = *one.Items
	default:
		output = setOf(*one.Items)
	}
	h.kind[*one.Key] = what.kind
	end := int64(unknownEnd)
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
		Output:   output,
		Return:   end,
	})
	return nil
}
