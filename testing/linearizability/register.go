package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// register is one key: it has the value that was put last, or none. Its state is a *string.
var register = porcupine.Model{
	Init: func() interface{} { return (*string)(nil) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		if asked := input.(request); asked.operation == "put" {
			return true, &asked.value
		}
		return same(state.(*string), output.(*string)), state
	},
	Equal: func(one, other interface{}) bool { return same(one.(*string), other.(*string)) },
	DescribeOperation: func(input, output interface{}) string {
		if asked := input.(request); asked.operation == "put" {
			return "put " + asked.value
		}
		return "get: " + describe(output.(*string))
	},
	DescribeState: func(state interface{}) string { return describe(state.(*string)) },
}

func same(one, other *string) bool {
	if one == nil || other == nil {
		return one == other
	}
	return *one == *other
}

func describe(value *string) string {
	if value == nil {
		return "nothing"
	}
	return fmt.Sprintf("%q", *value)
}
