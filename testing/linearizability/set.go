package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// set is one key: elements are added and removed, each as often as one likes. Its state is a string: the elements in order, each
// quoted on a line of its own.
var set = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		asked := input.(request)
		if asked.operation == "members" {
			return state == output, state
		}
		element := strconv.Quote(asked.value)
		elements := strings.SplitAfter(state.(string), "\n")
		elements = slices.DeleteFunc(elements, func(other string) bool { return other == "" || other == element+"\n" })
		if asked.operation == "add" {
			elements = append(elements, element+"\n")
			slices.Sort(elements)
		}
		return true, strings.Join(elements, "")
	},
	DescribeOperation: func(input, output interface{}) string {
		asked := input.(request)
		if output == nil {
			return asked.operation + " " + strconv.Quote(asked.value)
		}
		return asked.operation + ": " + describeItems(output)
	},
	DescribeState: describeItems,
}

// setOf does not take out what is there twice: no set is found so.
func setOf(items []string) string {
	quoted := make([]string, len(items))
	for at, item := range items {
		quoted[at] = strconv.Quote(item) + "\n"
	}
	slices.Sort(quoted)
	return strings.Join(quoted, "")
}

func describeItems(items interface{}) string {
	return fmt.Sprintf("[%s]", strings.ReplaceAll(strings.TrimSuffix(items.(string), "\n"), "\n", " "))
}
