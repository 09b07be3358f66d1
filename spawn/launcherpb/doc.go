// Package launcherpb is the generated form of launcher.proto, the contract between a supervisor and its launchers.
//
// It holds no code of its own and imports protobuf and gRPC only. To generate it again: protoc from the package
// grpcio-tools, protoc-gen-go v1.36.12 and protoc-gen-go-grpc on PATH, then `go generate ./spawn/launcherpb`.
package launcherpb

//go:generate python3 -m grpc_tools.protoc --proto_path=. --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative launcher.proto
