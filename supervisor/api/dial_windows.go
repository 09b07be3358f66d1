package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"

	"github.com/Microsoft/go-winio"
)

// PipeName returns the named pipe that stands for a socket path: a pipe's name as it is, for any other path a name
// that follows from it.
func PipeName(socket string) string {
	const prefix = `\\.\pipe\`
	if strings.HasPrefix(socket, prefix) {
		return socket
	}
	digest := sha256.Sum256([]byte(strings.ToLower(socket)))
	return prefix + "comfy-supervisor-" + hex.EncodeToString(digest[:8])
}

// Dial connects to a supervisor's pipe.
func Dial(ctx context.Context, socket string) (io.ReadWriteCloser, error) {
	return winio.DialPipeContext(ctx, PipeName(socket))
}
