// Histories has clients write and read a few keys of a store with etcd's API, through outages too,
// and has porcupine search an order that explains all answers.
//
// It prints a JSON object. Exit codes: 0 linearizable, 1 not, or an answer broke a promise.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// How long the watch may take for the rest when the clients are done.
	watchTimeout  = time.Minute
	searchTimeout = 3 * time.Minute
)

type options struct {
	endpoint, picture string
	clients, rate     int
	seconds           float64
}

type summary struct {
	Verdict          string         `json:"verdict"`
	Operations       int            `json:"operations"`
	Writes           int            `json:"writes"`
	WritesPerSecond  float64        `json:"writes_per_second"`
	Unanswered       int            `json:"unanswered"`
	UnansweredFound  int            `json:"unanswered_found"`
	WatchedRevisions int            `json:"watched_revisions"`
	LongestOutage    float64        `json:"longest_outage_seconds"`
	SearchSeconds    float64        `json:"search_seconds"`
	Errors           map[string]int `json:"errors"`
}

func main() {
	var given options
	flag.StringVar(&given.endpoint, "endpoint", "127.0.0.1:2379", "the store")
	flag.StringVar(&given.picture, "picture", "", "where the history is drawn if it is refused")
	flag.IntVar(&given.clients, "clients", 10, "clients, each with a connection")
	flag.IntVar(&given.rate, "rate", 1000, "requests a second, of all clients")
	flag.Float64Var(&given.seconds, "seconds", 20, "how long")
	flag.Parse()
	told, err := run(given)
	if err != nil {
		told.Verdict = err.Error()
	}
	shown, _ := json.Marshal(told)
	fmt.Println(string(shown))
	if told.Verdict != string(porcupine.Ok) {
		os.Exit(1)
	}
}

func run(given options) (summary, error) {
	r := &recorder{
		prefix: fmt.Sprintf("histories/%d/", time.Now().UnixNano()),
		begun:  time.Now(),
		errors: map[string]int{},
	}
	client, err := connect(given.endpoint)
	if err != nil {
		return summary{}, err
	}
	defer client.Close()
	first, err := revision(client, r.prefix)
	if err != nil {
		return summary{}, err
	}
	seen, err := record(given, r, client, first)
	told := summarize(given, r, seen)
	if err != nil {
		return told, err
	}
	known, err := complete(r.done, seen)
	if err != nil {
		return told, err
	}
	for _, did := range known {
		if did.out.isSeenByWatch {
			told.UnansweredFound++
		}
	}
	begun := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model(first), history(known), searchTimeout)
	told.Verdict, told.SearchSeconds = string(result), time.Since(begun).Seconds()
	if result != porcupine.Ok && given.picture != "" {
		err = porcupine.VisualizePath(model(first), info, given.picture)
	}
	return told, err
}

// record has the clients work; what the watch saw of it.
func record(given options, r *recorder, client *clientv3.Client, first int64) (watched, error) {
	working, stop := context.WithTimeout(context.Background(), time.Duration(given.seconds*float64(time.Second)))
	defer stop()
	watching, stopWatch := context.WithCancel(context.Background())
	defer stopWatch()
	end, failed := make(chan int64, 1), make(chan error, 1)
	var seen watched
	go func() {
		var err error
		seen, err = follow(watching, r, client, first, end)
		failed <- err
	}()
	var workers sync.WaitGroup
	every := time.Second * time.Duration(given.clients) / time.Duration(given.rate)
	for number := range given.clients {
		own, err := connect(given.endpoint)
		if err != nil {
			return seen, err
		}
		defer own.Close()
		workers.Go(func() { r.run(working, number, own, every) })
	}
	workers.Wait()
	last, err := revision(client, r.prefix)
	if err != nil {
		return watched{}, err
	}
	end <- last
	timer := time.AfterFunc(watchTimeout, stopWatch)
	defer timer.Stop()
	err = <-failed
	return seen, err
}

func connect(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: requestTimeout,
		Logger:      zap.NewNop(),
	})
}

func revision(client *clientv3.Client, prefix string) (int64, error) {
	limited, cancel := context.WithTimeout(context.Background(), watchTimeout)
	defer cancel()
	answer, err := client.Get(limited, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

func history(known []operation) []porcupine.Operation {
	made := make([]porcupine.Operation, 0, len(known))
	for _, did := range known {
		made = append(made, porcupine.Operation{
			ClientId: did.client,
			Input:    did.in,
			Output:   did.out,
			Call:     int64(did.began),
			Return:   int64(did.ended),
		})
	}
	return made
}

func summarize(given options, r *recorder, seen watched) summary {
	told := summary{Operations: len(r.done), WatchedRevisions: len(seen.changes), Errors: r.errors}
	var last, longest time.Duration
	for _, did := range r.done {
		switch {
		case did.ended == 0:
			told.Unanswered++
			continue
		case changed(did):
			told.Writes++
		}
		if last > 0 && did.ended-last > longest {
			longest = did.ended - last
		}
		last = max(last, did.ended)
	}
	told.LongestOutage = longest.Seconds()
	told.WritesPerSecond = float64(told.Writes) / given.seconds
	return told
}
