package api

import (
	"encoding/binary"
	"fmt"
)

// EnvelopeJSON returns the JSON of a body as Python writes it: a little-endian length of four bytes, the JSON, and bytes
// that it may refer to.
func EnvelopeJSON(body []byte) ([]byte, error) {
	const prefix = 4
	if len(body) < prefix {
		return nil, fmt.Errorf("a body of %d bytes has no length", len(body))
	}
	length := binary.LittleEndian.Uint32(body)
	if uint64(length) > uint64(len(body)-prefix) {
		return nil, fmt.Errorf("a body of %d bytes claims %d of JSON", len(body), length)
	}
	return body[prefix : prefix+int(length)], nil
}
