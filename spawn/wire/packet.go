package wire

import (
	"encoding/binary"
	"fmt"
)

// PacketBytes is the size of the largest packet. Where a socket keeps the borders of what is written (SOCK_SEQPACKET), a
// packet is one or more whole frames, or a part of one larger frame. So nobody who comes or goes between two packets,
// a supervisor that dies for example, leaves half of a frame to whoever reads or writes next.
//
// The first part of a large frame begins as the frame does. Each other part begins with a prefix whose header length is
// zero, which no frame has, and whose body length is the part's. A part without the one before it is dropped, and so is
// what has come of a frame when another one begins: whoever sent it is gone.
const PacketBytes = 64 << 10

// PacketEnd is where the first packet of a frame in stream form ends.
func PacketEnd(frame []byte) int { return min(len(frame), PacketBytes) }

// AppendPart appends to buffer the packet that follows when the bytes of a frame before rest have been sent. It returns
// the packet and what is left after it.
func AppendPart(buffer, rest []byte) (packet, left []byte) {
	size := min(len(rest), PacketBytes-PrefixBytes)
	buffer = binary.BigEndian.AppendUint32(buffer, 0)
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(size))
	return append(buffer, rest[:size]...), rest[size:]
}

// Assembler makes frames of packets.
type Assembler struct {
	whole   []byte // frames that Next has not returned yet
	part    []byte // of a frame that comes in several packets
	missing int    // bytes of it that have not come
}

// Add takes one packet, which must not be changed afterwards. It fails for what is no packet.
func (a *Assembler) Add(packet []byte) error {
	if len(packet) < PrefixBytes {
		return fmt.Errorf("a packet of %d bytes is no frame", len(packet))
	}
	if binary.BigEndian.Uint32(packet) == 0 {
		return a.goOn(packet)
	}
	a.part, a.missing = nil, 0
	for end := 0; end < len(packet); {
		size, err := FrameSize(packet[end:])
		if err != nil {
			return err
		}
		if end+size > len(packet) {
			if end > 0 || len(packet) < PacketBytes {
				return fmt.Errorf("a packet of %d bytes ends inside a frame of %d", len(packet), size)
			}
			a.part, a.missing = append(make([]byte, 0, size), packet...), size-len(packet)
			return nil
		}
		end += size
	}
	a.whole = packet
	return nil
}

// goOn takes a further part of a large frame.
func (a *Assembler) goOn(packet []byte) error {
	part := packet[PrefixBytes:]
	if int(binary.BigEndian.Uint32(packet[4:])) != len(part) {
		return fmt.Errorf("a part of %d bytes of a frame says that it has %d", len(part), binary.BigEndian.Uint32(packet[4:]))
	}
	switch {
	case a.missing == 0: // the beginning went to somebody who is gone
		return nil
	case len(part) > a.missing:
		return fmt.Errorf("a part of %d bytes of a frame that lacks %d", len(part), a.missing)
	}
	a.part = append(a.part, part...)
	if a.missing -= len(part); a.missing == 0 {
		a.whole, a.part = a.part, nil
	}
	return nil
}

// Next returns the next whole frame; false when another packet is needed.
func (a *Assembler) Next() (Frame, bool) {
	if len(a.whole) == 0 {
		return Frame{}, false
	}
	header := PrefixBytes + int(binary.BigEndian.Uint32(a.whole))
	end := header + int(binary.BigEndian.Uint32(a.whole[4:]))
	frame := Frame{Header: a.whole[PrefixBytes:header:header], Body: a.whole[header:end:end]}
	a.whole = a.whole[end:]
	return frame, true
}

// FrameSize is the size in bytes of the frame that data begins with, by its prefix. It fails for one beyond the limits.
func FrameSize(data []byte) (int, error) {
	if len(data) < PrefixBytes {
		return 0, fmt.Errorf("%d bytes are no frame", len(data))
	}
	header, body := binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])
	if header > MaxHeaderBytes || body > MaxFrameBytes {
		return 0, fmt.Errorf("a frame with a header of %d and a body of %d bytes: %w", header, body, ErrFrameTooLarge)
	}
	if err := CheckSize(int(header), int(body)); err != nil {
		return 0, err
	}
	return PrefixBytes + int(header) + int(body), nil
}
