// Package wire is the protocol that every process of the supervisor speaks: frames whose header is a JSON-RPC 2.0
// message and whose body is opaque bytes, and a Peer that sends and answers requests in both directions.
//
// Go reads headers only. Bodies hold Python's values and are never decoded here: Go would change what they mean
// (lone surrogates, integers of thirty digits, NaN). The Python twin of this package is spawn/pyworker/wire.
//
// The package owns no process, file or policy and imports nothing of this module.
package wire
