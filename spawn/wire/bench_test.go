package wire

import "testing"

func BenchmarkFrameThroughPackets(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"empty", 0}, {"64KiB", 60 << 10}, {"1MiB", MaxFrameBytes - 200}} {
		b.Run(size.name, func(b *testing.B) {
			packets := packetsOf(b, Frame{Header: make([]byte, 100), Body: make([]byte, size.bytes)})
			b.ReportAllocs()
			b.SetBytes(int64(size.bytes))
			var assembler Assembler
			for b.Loop() {
				for _, packet := range packets {
					if err := assembler.Add(packet); err != nil {
						b.Fatal(err)
					}
				}
				if _, ok := assembler.Next(); !ok {
					b.Fatal("no frame")
				}
			}
		})
	}
}
