package grpcmw_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	grpcmw "github.com/canarycontroller/canary-controller/middleware/grpc"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

type printer struct {
	testpb.UnimplementedTestServiceServer
}

func (printer) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	fmt.Println("served:", propagation.RequestIDFromContext(ctx))
	return &testpb.SimpleResponse{}, nil
}

// A server and a client that carry the caller's state through gRPC.
func Example() {
	server, err := grpcmw.NewServer()
	if err != nil {
		fmt.Println(err)
		return
	}
	s := grpc.NewServer(server.Options()...)
	testpb.RegisterTestServiceServer(s, printer{})
	server.Init(s)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()

	client, err := grpcmw.NewClient()
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := grpc.NewClient(lis.Addr().String(), append(client.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	// In a service the state is that of the request being handled.
	ctx := propagation.ContextWithState(context.Background(), propagation.State{RequestID: "4711"})
	var header metadata.MD
	if _, err := testpb.NewTestServiceClient(conn).UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header)); err != nil {
		fmt.Println(err)
	}
	fmt.Println("echoed:", header.Get("x-request-id")[0])

	if err := conn.Close(); err != nil {
		fmt.Println(err)
	}
	s.Stop()
	<-served
	// Output:
	// served: 4711
	// echoed: 4711
}
