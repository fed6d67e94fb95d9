package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type keyValue = mvccpb.KeyValue

// change is a revision as a watch has it: keys with their new content, zeros for those that went.
type change struct {
	keys map[int]key
	when time.Duration
}

// watched has the changes by revision.
type watched struct {
	changes map[int64]change
	last    int64
}

// follow takes in all changes up to a revision that is told when it is known; the client reopens
// the watch after each outage by itself. A hole, a repetition or a step back is an error.
func follow(ctx context.Context, r *recorder, client *clientv3.Client, from int64, end <-chan int64) (watched, error) {
	seen := watched{map[int64]change{}, from}
	events := client.Watch(clientv3.WithRequireLeader(ctx), r.prefix, clientv3.WithPrefix(), clientv3.WithRev(from+1))
	goal := int64(-1)
	for goal < 0 || seen.last < goal {
		select {
		case goal = <-end:
		case answer, isOpen := <-events:
			if !isOpen {
				return seen, fmt.Errorf("the watch ended at revision %d: %w", seen.last, ctx.Err())
			}
			if err := answer.Err(); err != nil {
				return seen, fmt.Errorf("the watch ended at revision %d: %w", seen.last, err)
			}
			if err := seen.take(r, answer.Events); err != nil {
				return seen, err
			}
		}
	}
	return seen, nil
}

func (w *watched) take(r *recorder, events []*clientv3.Event) error {
	begun := w.last
	for _, event := range events {
		revision := event.Kv.ModRevision
		// A revision is whole in one answer.
		if revision <= begun || revision < w.last || revision > w.last+1 {
			return fmt.Errorf("an event of revision %d after %d", revision, w.last)
		}
		if revision == w.last+1 {
			w.changes[revision] = change{map[int]key{}, time.Since(r.begun)}
			w.last = revision
		}
		at := r.at(event.Kv.Key)
		if _, is := w.changes[revision].keys[at]; is {
			return fmt.Errorf("two events of key %d at revision %d", at, revision)
		}
		if event.Type == clientv3.EventTypeDelete {
			w.changes[revision].keys[at] = key{}
		} else {
			w.changes[revision].keys[at] = held(event.Kv)
		}
	}
	return nil
}

// changed says whether an acknowledged operation wrote something.
func changed(did operation) bool {
	switch did.in.kind {
	case put, pair:
		return true
	case remove, create, update, removeAt:
		return did.out.succeeded
	default:
		return false
	}
}

// complete gives operations without an answer the outcome that the watch saw, and leaves out those
// of which it saw none; all that was acknowledged must be there.
func complete(done []operation, seen watched) ([]operation, error) {
	free := maps.Clone(seen.changes)
	var known, open []operation
	for _, did := range done {
		if did.ended == 0 {
			open = append(open, did)
			continue
		}
		known = append(known, did)
		if !changed(did) {
			continue
		}
		if change, is := free[did.out.revision]; !is || !fits(did.in, change) {
			return nil, fmt.Errorf("acknowledged, but not in the watch: %+v", did)
		}
		delete(free, did.out.revision)
	}
	for _, did := range open {
		for _, revision := range slices.Sorted(maps.Keys(free)) {
			change := free[revision]
			if change.when >= did.began && fits(did.in, change) {
				did.out = output{revision: revision, succeeded: true, isSeenByWatch: true}
				did.ended = change.when
				known = append(known, did)
				delete(free, revision)
				break
			}
		}
	}
	if len(free) > 0 {
		return nil, fmt.Errorf("the watch saw changes that nobody made: %+v", free)
	}
	return known, nil
}

// fits says whether a change can be that of a request.
func fits(in input, change change) bool {
	content, is := change.keys[in.key]
	if !is {
		return false
	}
	switch in.kind {
	case remove, removeAt:
		return content == key{} && len(change.keys) == 1
	case pair:
		return content.value == in.value && change.keys[in.other].value == in.value
	default:
		return content.value == in.value && len(change.keys) == 1
	}
}
