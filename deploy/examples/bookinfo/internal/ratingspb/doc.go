// Package ratingspb is the generated form of ratings.proto, the contract
// between reviews and ratings. It imports gRPC and protobuf only.
package ratingspb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative ratings.proto
