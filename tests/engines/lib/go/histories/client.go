package main

import (
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	requestTimeout = 5 * time.Second
	// How long a client waits after an error, so that an outage is not thousands of them.
	pause = 100 * time.Millisecond
)

// operation is one that began; ended is zero where no answer came.
type operation struct {
	client       int
	in           input
	out          output
	began, ended time.Duration
}

// recorder has what all clients did.
type recorder struct {
	prefix string
	begun  time.Time
	mutex  sync.Mutex
	done   []operation
	errors map[string]int
	value  int64
}

func (r *recorder) name(at int) string { return fmt.Sprintf("%s%d", r.prefix, at) }

func (r *recorder) at(name []byte) int {
	at, err := strconv.Atoi(strings.TrimPrefix(string(name), r.prefix))
	if err != nil || at < 0 || at >= keys {
		panic(fmt.Sprintf("a key that nobody wrote: %q", name))
	}
	return at
}

func (r *recorder) unique() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.value++
	return r.value
}

// run has one client send requests at a rate until the time is over.
func (r *recorder) run(ctx context.Context, number int, client *clientv3.Client, every time.Duration) {
	random := rand.New(rand.NewSource(int64(number)))
	// What this client has seen of each key's revision, as a cache would.
	var seen [keys]int64
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		in := r.next(random, &seen)
		did := operation{client: number, in: in, began: time.Since(r.begun)}
		// An operation that has begun is not cut off by the end of the run.
		limited, cancel := context.WithTimeout(context.Background(), requestTimeout)
		out, err := r.send(limited, client, in)
		cancel()
		did.out = out
		if err == nil {
			did.ended = time.Since(r.begun)
			remember(&seen, in, out)
		}
		r.add(did, err)
		if err != nil {
			time.Sleep(pause)
		}
	}
}

func (r *recorder) add(did operation, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.done = append(r.done, did)
	if err != nil {
		r.errors[err.Error()]++
	}
}

func (r *recorder) next(random *rand.Rand, seen *[keys]int64) input {
	kinds := []string{get, get, list, put, put, remove, create, create, update, update, update, removeAt, pair}
	in := input{kind: kinds[random.Intn(len(kinds))], key: random.Intn(keys)}
	switch in.kind {
	case pair:
		in.other = (in.key + 1) % keys
		fallthrough
	case put, create:
		in.value = r.unique()
	case update:
		in.value = r.unique()
		fallthrough
	case removeAt:
		in.mod = seen[in.key]
		if in.mod == 0 {
			in.kind = get
		}
	}
	return in
}

func remember(seen *[keys]int64, in input, out output) {
	switch in.kind {
	case list:
		for at := range seen {
			seen[at] = out.found[at].mod
		}
	case put, pair:
		seen[in.key] = out.revision
	case create, update:
		seen[in.key] = out.found[in.key].mod
		if out.succeeded {
			seen[in.key] = out.revision
		}
	case get:
		seen[in.key] = out.found[in.key].mod
	}
}

// send makes one request.
func (r *recorder) send(ctx context.Context, client *clientv3.Client, in input) (output, error) {
	name, value := r.name(in.key), strconv.FormatInt(in.value, 10)
	switch in.kind {
	case get:
		answer, err := client.Get(ctx, name)
		if err != nil {
			return output{}, err
		}
		return r.output(answer.Header.Revision, true, answer.Kvs), nil
	case list:
		answer, err := client.Get(ctx, r.prefix, clientv3.WithPrefix())
		if err != nil {
			return output{}, err
		}
		if answer.Count != int64(len(answer.Kvs)) {
			panic(fmt.Sprintf("count is %d with %d keys", answer.Count, len(answer.Kvs)))
		}
		return r.output(answer.Header.Revision, true, answer.Kvs), nil
	case put:
		answer, err := client.Put(ctx, name, value, clientv3.WithPrevKV())
		if err != nil {
			return output{}, err
		}
		if answer.PrevKv == nil {
			return r.output(answer.Header.Revision, true, nil), nil
		}
		return r.output(answer.Header.Revision, true, []*keyValue{answer.PrevKv}), nil
	case remove:
		answer, err := client.Delete(ctx, name, clientv3.WithPrevKV())
		if err != nil {
			return output{}, err
		}
		return r.output(answer.Header.Revision, answer.Deleted > 0, answer.PrevKvs), nil
	default:
		return r.transact(ctx, client, in)
	}
}

func (r *recorder) transact(ctx context.Context, client *clientv3.Client, in input) (output, error) {
	name, value := r.name(in.key), strconv.FormatInt(in.value, 10)
	txn := client.Txn(ctx)
	if in.kind == pair {
		txn = txn.Then(clientv3.OpPut(name, value), clientv3.OpPut(r.name(in.other), value))
	} else {
		// As Kubernetes: a key that is not there has the revision 0.
		then := clientv3.OpPut(name, value)
		if in.kind == removeAt {
			then = clientv3.OpDelete(name)
		}
		txn = txn.If(clientv3.Compare(clientv3.ModRevision(name), "=", in.mod)).
			Then(then).Else(clientv3.OpGet(name))
	}
	answer, err := txn.Commit()
	if err != nil {
		return output{}, err
	}
	var found []*keyValue
	if !answer.Succeeded {
		found = answer.Responses[0].GetResponseRange().Kvs
	}
	return r.output(answer.Header.Revision, answer.Succeeded, found), nil
}

func (r *recorder) output(revision int64, succeeded bool, found []*keyValue) output {
	out := output{revision: revision, succeeded: succeeded}
	for _, kv := range found {
		out.found[r.at(kv.Key)] = held(kv)
	}
	return out
}

func held(kv *keyValue) key {
	value, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("a value that nobody wrote: %q", kv.Value))
	}
	return key{value, kv.CreateRevision, kv.ModRevision, kv.Version}
}
