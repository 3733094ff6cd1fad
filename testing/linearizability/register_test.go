package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// check writes the lines to a file and returns the exit code.
func check(t *testing.T, lines ...string) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return run(path, 10*time.Second, filepath.Join(t.TempDir(), "picture.html"))
}

const (
	putA        = `{"client":1,"key":"k","op":"put","value":"a","start_nanos":10,"end_nanos":20}`
	putBUnknown = `{"client":2,"key":"k","op":"put","value":"b","start_nanos":30,"end_nanos":null}`
	getA        = `{"client":3,"key":"k","op":"get","value":"a","level":"lease","start_nanos":60,"end_nanos":70}`
	getB        = `{"client":3,"key":"k","op":"get","value":"b","level":"linearizable","start_nanos":40,"end_nanos":50}`
	getNothing  = `{"client":3,"key":"k","op":"get","value":null,"level":"linearizable","start_nanos":25,"end_nanos":28}`
)

func TestHistories(t *testing.T) {
	for name, one := range map[string]struct {
		code  int
		lines []string
	}{
		"what was put is read":                      {0, []string{putA, getA}},
		"an unknown put may have happened":          {0, []string{putA, putBUnknown, getB}},
		"an unknown put may not have happened":      {0, []string{putA, putBUnknown, getA}},
		"an acknowledged write is lost":             {1, []string{putA, getNothing}},
		"a read goes back in time":                  {1, []string{putA, putBUnknown, getB, getA}},
		"a value that nobody put":                   {1, []string{getB}},
		"before the put there is nothing":           {0, []string{strings.ReplaceAll(getNothing, "25", "5"), putA}},
		"keys are apart":                            {0, []string{putA, strings.ReplaceAll(getNothing, `"k"`, `"l"`)}},
		"no history at all":                         {2, []string{}},
		"a get without an answer":                   {2, []string{strings.ReplaceAll(getB, `"end_nanos":50`, `"end_nanos":null`)}},
		"a level that promises less":                {2, []string{strings.ReplaceAll(getA, "lease", "eventual")}},
		"an end before the start":                   {2, []string{strings.ReplaceAll(putA, "20", "5")}},
		"an operation that is none":                 {2, []string{strings.ReplaceAll(putA, "put", "push")}},
		"a line that is cut off":                    {2, []string{putA[:40]}},
		"a put without a value":                     {2, []string{strings.ReplaceAll(putA, `"a"`, "null")}},
		"an operation of a client without a number": {2, []string{strings.ReplaceAll(putA, "client", "customer")}},
	} {
		t.Run(name, func(t *testing.T) {
			if code := check(t, one.lines...); code != one.code {
				t.Errorf("exit code %d, not %d", code, one.code)
			}
		})
	}
}
