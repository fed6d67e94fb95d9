package main

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// did makes an operation of one client that takes one unit of time, from `began` on.
func did(began int64, in input, out output) operation {
	return operation{in: in, out: out, began: time.Duration(began), ended: time.Duration(began + 1)}
}

func found(at int, content key) [keys]key {
	var all [keys]key
	all[at] = content
	return all
}

// What etcd answers to a put, a get, a create in vain, an update and a delete.
func session() []operation {
	return []operation{
		did(1, input{kind: put, key: 3, value: 7}, output{revision: 11, succeeded: true}),
		did(3, input{kind: get, key: 3}, output{revision: 11, found: found(3, key{7, 11, 11, 1})}),
		did(5, input{kind: create, key: 3, value: 8}, output{revision: 11, found: found(3, key{7, 11, 11, 1})}),
		did(7, input{kind: update, key: 3, value: 9, mod: 11}, output{revision: 12, succeeded: true}),
		did(9, input{kind: list}, output{revision: 12, found: found(3, key{9, 11, 12, 2})}),
		did(11, input{kind: remove, key: 3}, output{revision: 13, succeeded: true, found: found(3, key{9, 11, 12, 2})}),
		did(13, input{kind: pair, key: 1, other: 2, value: 10}, output{revision: 14, succeeded: true}),
	}
}

func verdict(done []operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model(10), history(done), time.Second)
}

func TestWhatEtcdAnswersIsLinearizable(t *testing.T) {
	if got := verdict(session()); got != porcupine.Ok {
		t.Fatal(got)
	}
}

func TestEachWrongAnswerIsFound(t *testing.T) {
	wrong := map[string]func([]operation){
		"a stale read":            func(done []operation) { done[4].out = output{revision: 11, found: done[1].out.found} },
		"a revision used twice":   func(done []operation) { done[3].out.revision = 11 },
		"a revision left out":     func(done []operation) { done[6].out.revision = 15 },
		"a lost write":            func(done []operation) { done[1].out.found = [keys]key{} },
		"a create over a key":     func(done []operation) { done[2].out.succeeded = true },
		"a version that restarts": func(done []operation) { done[4].out.found[3].version = 1 },
		"a wrong previous value":  func(done []operation) { done[5].out.found[3].value = 7 },
	}
	for name, spoil := range wrong {
		done := session()
		spoil(done)
		if got := verdict(done); got != porcupine.Illegal {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTheWatchTellsTheOutcomesThatNobodyAnswered(t *testing.T) {
	done := session()
	done[0].ended, done[5].ended = 0, 0
	lost := operation{in: input{kind: put, key: 4, value: 99}, began: 2}
	seen := watched{changes: map[int64]change{
		11: {map[int]key{3: {7, 11, 11, 1}}, 2},
		12: {map[int]key{3: {9, 11, 12, 2}}, 9},
		13: {map[int]key{3: {}}, 13},
		14: {map[int]key{1: {10, 14, 14, 1}, 2: {10, 14, 14, 1}}, 15},
	}}
	known, err := complete(append(slices.Clone(done), lost), seen)
	if err != nil || len(known) != len(done) {
		t.Fatal(known, err)
	}
	if got := verdict(known); got != porcupine.Ok {
		t.Fatal(got)
	}
	delete(seen.changes, 12)
	if _, err := complete(done, seen); err == nil {
		t.Fatal("a hole in the watch was not found")
	}
}
