package main

import (
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"
)

// checkList says why a key that values are appended to is not linearizable; nil: it is. No search is needed, which would grow without bound
// with appends of unknown outcome: each value is appended once, so the longest look gives the only order that appends can have, and a
// look at k items belongs behind the k-th of them.
func checkList(operations []porcupine.Operation) error {
	appends := map[string]porcupine.Operation{}
	longest := []string{}
	for _, one := range operations {
		if one.Output == nil {
			appends[one.Input.(request).value] = one
		} else if items := one.Output.([]string); len(items) > len(longest) {
			longest = items
		}
	}
	places, err := placesOf(longest, appends)
	if err != nil {
		return err
	}
	type placed struct {
		at  int
		who porcupine.Operation
	}
	order := []placed{}
	for _, one := range operations {
		if one.Output != nil {
			items := one.Output.([]string)
			for at, item := range items {
				if item != longest[at] {
					return fmt.Errorf("%s has %q as number %d, where the longest look has %q", describeList(one), item, at+1, longest[at])
				}
			}
			order = append(order, placed{2 * len(items), one})
			continue
		}
		place, isSeen := places[one.Input.(request).value]
		switch {
		case isSeen:
			order = append(order, placed{2*place + 1, one})
		case one.Return != unknownEnd:
			// Nobody saw it, so it is behind all looks.
			order = append(order, placed{2*len(longest) + 1, one})
		}
	}
	sort.SliceStable(order, func(i, j int) bool {
		if order[i].at != order[j].at {
			return order[i].at < order[j].at
		}
		return order[i].who.Call < order[j].who.Call
	})
	// What comes later in the only order must not have ended before something earlier in it began.
	var latest porcupine.Operation
	for at, one := range order {
		if at > 0 && one.who.Return < latest.Call {
			return fmt.Errorf("%s ended before %s began, but the order of the list has it behind", describeList(one.who), describeList(latest))
		}
		if at == 0 || one.who.Call > latest.Call {
			latest = one.who
		}
	}
	return nil
}

// placesOf numbers items from 0. Each was appended, and is there once.
func placesOf(items []string, appends map[string]porcupine.Operation) (map[string]int, error) {
	places := map[string]int{}
	for at, item := range items {
		if _, isThere := places[item]; isThere {
			return nil, fmt.Errorf("%q is there twice", item)
		}
		if _, isAppended := appends[item]; !isAppended {
			return nil, fmt.Errorf("nobody appended %q, which is there", item)
		}
		places[item] = at
	}
	return places, nil
}

func describeList(one porcupine.Operation) string {
	end := "with an unknown end"
	if one.Return != unknownEnd {
		end = fmt.Sprintf("to %d", one.Return)
	}
	if one.Output == nil {
		return fmt.Sprintf("append %q (client %d, from %d ns %s)", one.Input.(request).value, one.ClientId, one.Call, end)
	}
	return fmt.Sprintf("a look at %d items (client %d, from %d ns %s)", len(one.Output.([]string)), one.ClientId, one.Call, end)
}
