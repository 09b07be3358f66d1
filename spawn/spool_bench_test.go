package spawn

import (
	"strings"
	"testing"
)

func BenchmarkSpool(b *testing.B) {
	for _, test := range []struct{ name, pattern string }{
		{"without a newline", strings.Repeat("x", 32<<10)},
		{"short lines", strings.Repeat("short\n", 1000)},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(1 << 20)
			s := newSpool()
			s.read(StreamStdout, &repeated{pattern: test.pattern, left: int64(b.N) << 20})
		})
	}
}
