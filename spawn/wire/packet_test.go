package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// packetsOf is a frame as the packets it travels in.
func packetsOf(t interface{ Fatal(...any) }, frame Frame) [][]byte {
	data, err := AppendFrame(nil, frame)
	if err != nil {
		t.Fatal(err)
	}
	end := PacketEnd(data)
	packets := [][]byte{data[:end:end]}
	for rest := data[end:]; len(rest) > 0; {
		var packet []byte
		packet, rest = AppendPart(nil, rest)
		packets = append(packets, packet)
	}
	return packets
}

func drawFrame(t *rapid.T) Frame {
	header := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "header")
	body := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.SampledFrom([]int{0, 1, 1000, PacketBytes - PrefixBytes - len(header),
		PacketBytes, 3*PacketBytes + 5, MaxFrameBytes - len(header)}).Draw(t, "size"))
	return Frame{Header: header, Body: body}
}

func drain(assembler *Assembler) (frames []Frame) {
	for {
		frame, ok := assembler.Next()
		if !ok {
			return frames
		}
		frames = append(frames, frame)
	}
}

func TestFramesSurviveTheirPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(rapid.Custom(drawFrame), 1, 6).Draw(t, "frames")
		var assembler Assembler
		var got []Frame
		for _, frame := range frames {
			for _, packet := range packetsOf(t, frame) {
				if len(packet) > PacketBytes {
					t.Fatalf("a packet of %d bytes", len(packet))
				}
				if err := assembler.Add(packet); err != nil {
					t.Fatal(err)
				}
				got = append(got, drain(&assembler)...)
			}
		}
		expectFrames(t, got, frames)
	})
}

func expectFrames(t interface{ Fatalf(string, ...any) }, got, want []Frame) {
	if len(got) != len(want) {
		t.Fatalf("%d frames of %d", len(got), len(want))
	}
	for index := range want {
		if !bytes.Equal(got[index].Header, want[index].Header) || !bytes.Equal(got[index].Body, want[index].Body) {
			t.Fatalf("frame %d differs", index)
		}
	}
}

// TestOnlyTheTornFrameIsLost has somebody die in the middle of reading, and somebody in the middle of writing.
func TestOnlyTheTornFrameIsLost(t *testing.T) {
	large := Frame{Header: []byte("large"), Body: make([]byte, 5*PacketBytes)}
	small := Frame{Header: []byte("small"), Body: []byte("body")}
	torn := packetsOf(t, large)
	for name, packets := range map[string][][]byte{
		"the reader is gone": torn[2:], "the writer is gone": torn[:3], "only the beginning came": torn[:1], "only the end came": torn[5:],
	} {
		t.Run(name, func(t *testing.T) {
			var assembler Assembler
			var got []Frame
			for _, packet := range append(append(append([][]byte{}, packets...), packetsOf(t, small)...), packetsOf(t, large)...) {
				if err := assembler.Add(packet); err != nil {
					t.Fatal(err)
				}
				got = append(got, drain(&assembler)...)
			}
			expectFrames(t, got, []Frame{small, large})
		})
	}
}

func TestSeveralFramesFitIntoOnePacket(t *testing.T) {
	frames := []Frame{{Header: []byte("one"), Body: []byte{}}, {Header: []byte("two"), Body: []byte("body")}, {Header: []byte("three"), Body: []byte{}}}
	var assembler Assembler
	var packet []byte
	for _, frame := range frames {
		packet = append(packet, packetsOf(t, frame)[0]...)
	}
	if err := assembler.Add(packet); err != nil {
		t.Fatal(err)
	}
	expectFrames(t, drain(&assembler), frames)
}

// FuzzAssembler feeds it what no honest side sends: it fails or goes on, and never returns what is no frame.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 'x'}, []byte{0, 0, 0, 0, 0, 0, 0, 1, 'y'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, []byte{})
	f.Add([]byte{0, 0, 0, 5, 0, 0, 0, 0, 'x'}, []byte{0, 0, 0, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var assembler Assembler
		for _, packet := range [][]byte{first, second, first} {
			err := assembler.Add(packet)
			for _, frame := range drain(&assembler) {
				if err := CheckSize(len(frame.Header), len(frame.Body)); err != nil {
					t.Fatal(err)
				}
			}
			if err != nil {
				return
			}
		}
	})
}
