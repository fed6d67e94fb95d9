// Tap passes the gRPC calls of etcd's clients on to a store, byte by byte, and counts them by
// shape and, for Kubernetes' keys, by resource. It serves the counts as a JSON object over HTTP.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// counts has the numbers of requests by shape; that of open watches goes down, too.
type counts struct {
	mutex   sync.Mutex
	numbers map[string]int
}

const openWatches = "open watches"

func (c *counts) add(name string, number int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.numbers[name] += number
}

func (c *counts) ServeHTTP(answer http.ResponseWriter, _ *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := json.NewEncoder(answer).Encode(c.numbers); err != nil {
		log.Print(err)
	}
}

// frame is a message that is passed on as it is.
type frame struct{ bytes []byte }

type raw struct{}

func (raw) Marshal(message any) ([]byte, error) { return message.(*frame).bytes, nil }
func (raw) Unmarshal(bytes []byte, message any) error {
	message.(*frame).bytes = bytes
	return nil
}
func (raw) Name() string { return "proto" }

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "for etcd's clients")
	counted := flag.String("counts", "127.0.0.1:0", "for who asks /counts and /readyz")
	store := flag.String("store", "127.0.0.1:2379", "where calls go")
	flag.Int("v", 0, "as Kubernetes' programs have it; there is nothing more to say")
	flag.Parse()
	whole := grpc.MaxCallRecvMsgSize(math.MaxInt32)
	connection, err := grpc.NewClient(*store,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), whole))
	if err != nil {
		log.Fatal(err)
	}
	c := &counts{numbers: map[string]int{}}
	http.Handle("/counts", c)
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	go func() { log.Fatal(http.ListenAndServe(*counted, nil)) }()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ForceServerCodec(raw{}),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(func(_ any, up grpc.ServerStream) error { return c.pass(connection, up) }))
	log.Fatal(server.Serve(listener))
}

// pass passes one call on, to its end on either side.
func (c *counts) pass(connection *grpc.ClientConn, up grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(up)
	method = method[strings.LastIndex(method, "/")+1:]
	given, _ := metadata.FromIncomingContext(up.Context())
	outgoing, cancel := context.WithCancel(metadata.NewOutgoingContext(up.Context(), given))
	defer cancel()
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	full, _ := grpc.MethodFromServerStream(up)
	down, err := connection.NewStream(outgoing, both, full)
	if err != nil {
		return err
	}
	go c.requests(method, up, down, cancel)
	open := 0
	defer func() { c.add(openWatches, -open) }()
	for {
		var message frame
		if err := down.RecvMsg(&message); err != nil {
			up.SetTrailer(down.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if method == "Watch" {
			change := watches(message.bytes)
			open += change
			c.add(openWatches, change)
		}
		if err := up.SendMsg(&message); err != nil {
			return err
		}
	}
}

func (c *counts) requests(method string, up grpc.ServerStream, down grpc.ClientStream, cancel func()) {
	for {
		var message frame
		if err := up.RecvMsg(&message); errors.Is(err, io.EOF) {
			_ = down.CloseSend()
			return
		} else if err != nil {
			cancel()
			return
		}
		c.add(shape(method, message.bytes), 1)
		if down.SendMsg(&message) != nil {
			return
		}
	}
}

// watches is by how many an answer changes the number of open watches.
func watches(bytes []byte) int {
	var answer pb.WatchResponse
	switch {
	case answer.Unmarshal(bytes) != nil:
		return 0
	case answer.Canceled && !answer.Created:
		return -1
	case answer.Created && !answer.Canceled:
		return 1
	}
	return 0
}
