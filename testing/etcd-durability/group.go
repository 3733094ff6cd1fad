package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Of so many kills of a group, one is of all members.
const killsOfOneEach = 4

// group is all servers under test.
type group struct {
	members []*server
}

func newGroup(program string, members int) (*group, error) {
	g := &group{}
	var cluster []string
	for number := range members {
		member, err := newServer(program, fmt.Sprintf("m%d", number))
		if err != nil {
			g.remove()
			return nil, err
		}
		g.members = append(g.members, member)
		cluster = append(cluster, member.name+"="+member.peerURL)
	}
	for _, member := range g.members {
		member.cluster = strings.Join(cluster, ",")
	}
	return g, nil
}

func (g *group) endpoints() []string {
	var all []string
	for _, member := range g.members {
		all = append(all, member.clientURL)
	}
	return all
}

// start starts members, and returns when each of them answers.
func (g *group) start(members ...*server) error {
	for _, member := range members {
		if err := member.start(); err != nil {
			return err
		}
	}
	for _, member := range members {
		if err := member.answers(); err != nil {
			return err
		}
	}
	return nil
}

// killSome kills one member, or all, and starts them again; of several at different moments.
func (g *group) killSome(random *rand.Rand) error {
	doomed := g.members
	if len(g.members) > 1 && random.IntN(killsOfOneEach) > 0 {
		one := random.IntN(len(g.members))
		doomed = g.members[one : one+1]
	}
	for _, member := range doomed {
		member.kill()
		if len(g.members) > 1 {
			time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
		}
	}
	if len(doomed) == 1 && len(g.members) > 1 {
		// The others go on alone for a while.
		time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
	}
	return g.start(doomed...)
}

// compare says which members have something else than the first one.
func (g *group) compare(ctx context.Context, client *clientv3.Client) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	last, err := client.Get(ctx, "the end")
	if err != nil {
		return nil, fmt.Errorf("before the comparison: %w", err)
	}
	var problems []string
	var first *clientv3.HashKVResponse
	for _, member := range g.members {
		one, err := connect(member.clientURL)
		if err != nil {
			return nil, err
		}
		// It has everything when it has answered.
		_, err = one.Get(ctx, "the end")
		one.Close()
		if err != nil {
			return nil, fmt.Errorf("%s before the comparison: %w", member.name, err)
		}
		hash, err := client.HashKV(ctx, member.clientURL, last.Header.Revision)
		if err != nil {
			return nil, fmt.Errorf("the hash of %s: %w", member.name, err)
		}
		if first == nil {
			first = hash
		}
		if hash.Hash != first.Hash || hash.CompactRevision != first.CompactRevision {
			problems = append(problems, fmt.Sprintf("%s has hash %d at revision %d, %s has %d", member.name, hash.Hash,
				last.Header.Revision, g.members[0].name, first.Hash))
		}
	}
	return problems, nil
}

func (g *group) remove() {
	for _, member := range g.members {
		member.remove()
	}
}
