package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Kinds of operations: the shapes that Kubernetes sends, and plain ones.
const (
	get    = "get"
	list   = "list"
	put    = "put"
	remove = "delete"
	// Transactions: put where there is no key, put and delete at a revision, else get.
	create   = "create"
	update   = "update"
	removeAt = "delete at"
	// A transaction of two puts, which have one revision.
	pair = "pair"
)

// keys is small, so that clients often meet.
const keys = 8

// key is what the store holds of one: all zeros where it holds nothing.
type key struct {
	value, create, mod, version int64
}

// state is the whole store.
type state struct {
	revision int64
	keys     [keys]key
}

// input is what a client asks for; value is unique.
type input struct {
	kind       string
	key, other int
	value      int64
	// The expected revision of the key.
	mod int64
}

// output is what the store answers.
type output struct {
	revision  int64
	succeeded bool
	// What the store held before, or holds: of one key, or of all.
	found [keys]key
	// Whether the client never got an answer, and the watch had it.
	isSeenByWatch bool
}

func (s *state) put(at int, value int64) {
	old := s.keys[at]
	if old.version == 0 {
		old.create = s.revision
	}
	s.keys[at] = key{value, old.create, s.revision, old.version + 1}
}

// applies says whether a write changes the store.
func (s *state) applies(in input) bool {
	held := s.keys[in.key]
	switch in.kind {
	case put, pair:
		return true
	case remove:
		return held.version > 0
	case create:
		return held.version == 0
	case update:
		return held.mod == in.mod
	case removeAt:
		return held.version > 0 && held.mod == in.mod
	default:
		return false
	}
}

// step is etcd's promise: each change has the next revision, each answer the current content.
func step(before state, in input, out output) (bool, state) {
	after := before
	changes := before.applies(in)
	if changes {
		after.revision++
		switch in.kind {
		case remove, removeAt:
			after.keys[in.key] = key{}
		case pair:
			after.put(in.other, in.value)
			fallthrough
		default:
			after.put(in.key, in.value)
		}
	}
	if out.revision != after.revision {
		return false, before
	}
	if out.isSeenByWatch {
		return changes, after
	}
	switch in.kind {
	case list:
		return out.found == before.keys, after
	case create, update, removeAt:
		if out.succeeded != changes {
			return false, before
		}
		// Only the other branch reads.
		return changes || out.found[in.key] == before.keys[in.key], after
	case pair:
		return true, after
	default:
		return out.found[in.key] == before.keys[in.key], after
	}
}

// model is etcd as porcupine takes it, from a revision on, without keys.
func model(revision int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{revision: revision} },
		Step: func(s, in, out any) (bool, any) {
			return step(s.(state), in.(input), out.(output))
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}
