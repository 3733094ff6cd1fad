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

	appendA        = `{"client":1,"key":"l","op":"append","value":"a","start_nanos":10,"end_nanos":20}`
	appendB        = `{"client":2,"key":"l","op":"append","value":"b","start_nanos":12,"end_nanos":22}`
	appendCUnknown = `{"client":4,"key":"l","op":"append","value":"c","start_nanos":14,"end_nanos":null}`
	listABC        = `{"client":3,"key":"l","op":"list","items":["a","b","c"],"level":"lease","start_nanos":70,"end_nanos":80}`
	listABLater    = `{"client":3,"key":"l","op":"list","items":["a","b"],"level":"lease","start_nanos":90,"end_nanos":95}`
	listNothing    = `{"client":3,"key":"l","op":"list","items":[],"level":"lease","start_nanos":21,"end_nanos":28}`
	listAB         = `{"client":3,"key":"l","op":"list","items":["a","b"],"level":"lease","start_nanos":30,"end_nanos":40}`
	listBA         = `{"client":3,"key":"l","op":"list","items":["b","a"],"level":"lease","start_nanos":50,"end_nanos":60}`
	listB          = `{"client":3,"key":"l","op":"list","items":["b"],"level":"lease","start_nanos":50,"end_nanos":60}`
	addA           = `{"client":1,"key":"s","op":"add","value":"a","start_nanos":10,"end_nanos":20}`
	addB           = `{"client":2,"key":"s","op":"add","value":"b","start_nanos":12,"end_nanos":22}`
	removeA        = `{"client":1,"key":"s","op":"remove","value":"a","start_nanos":30,"end_nanos":40}`
	membersBA      = `{"client":3,"key":"s","op":"members","items":["b","a"],"level":"lease","start_nanos":25,"end_nanos":28}`
	membersB       = `{"client":3,"key":"s","op":"members","items":["b"],"level":"lease","start_nanos":50,"end_nanos":60}`
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
		"what was appended is listed in one order":  {0, []string{appendA, appendB, listAB}},
		"or in the other":                           {0, []string{appendA, appendB, listBA}},
		"but not in both":                           {1, []string{appendA, appendB, listAB, listBA}},
		"an unknown append is there later":          {0, []string{appendA, appendB, appendCUnknown, listAB, listABC}},
		"and then it is gone again":                 {1, []string{appendA, appendB, appendCUnknown, listABC, listABLater}},
		"an unknown append never happens":           {0, []string{appendA, appendB, appendCUnknown, listAB}},
		"an append that nobody has seen yet":        {0, []string{appendB, strings.ReplaceAll(appendA, "20", "60"), listB}},
		"a list is empty after an append":           {1, []string{appendA, listNothing}},
		"appends in the order of their time":        {1, []string{appendA, strings.ReplaceAll(appendB, "12", "21"), listBA}},
		"an item that nobody appended":              {1, []string{appendA, listAB}},
		"a value appended twice":                    {2, []string{appendA, appendA}},
		"an append is lost":                         {1, []string{appendA, appendB, listB}},
		"an append is there twice":                  {1, []string{appendA, strings.ReplaceAll(listAB, `"b"`, `"a"`)}},
		"the members of a set in any order":         {0, []string{addA, addB, membersBA}},
		"what was added twice is there once":        {0, []string{addB, addB, membersB}},
		"what was removed is gone":                  {0, []string{addA, addB, membersBA, removeA, membersB}},
		"what was removed is there":                 {1, []string{addA, addB, removeA, strings.ReplaceAll(membersBA, "25,\"end_nanos\":28", "50,\"end_nanos\":60")}},
		"an element is missing":                     {1, []string{addA, addB, membersB}},
		"a key of two kinds":                        {2, []string{addA, strings.ReplaceAll(putA, `"k"`, `"s"`)}},
		"a list without items":                      {2, []string{strings.ReplaceAll(listAB, "items", "value_of")}},
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
