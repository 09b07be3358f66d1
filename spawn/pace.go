package spawn

import "time"

// A launcher hands on what its worker prints, each line with its overhead, at a bounded pace: a flood must not keep its
// supervisor, which serves every other worker, busy with lines that the log has no room for anyway. A burst passes at
// logPeakBytesPerSecond, at most a tenth of a processor's time, in pieces of some tenths of a millisecond with pauses
// between them; what goes on for longer at logBytesPerSecond. Python never waits for that; what the spool has no room
// for is counted.
const (
	logBurstBytes         = 16 << 20
	logPeakBytesPerSecond = 8 << 20
	logBytesPerSecond     = 4 << 20
)

// pace is an allowance of bytes that grows with time, up to a burst.
type pace struct {
	left float64
	at   time.Time
}

func newPace(now time.Time) *pace { return &pace{left: logBurstBytes, at: now} }

// spend takes bytes, and returns how long to wait before more may be taken.
func (p *pace) spend(bytes int, now time.Time) time.Duration {
	p.left = min(logBurstBytes, p.left+max(0, now.Sub(p.at).Seconds())*logBytesPerSecond) - float64(bytes)
	p.at = now
	wait := max(float64(bytes)/logPeakBytesPerSecond, -p.left/logBytesPerSecond)
	return time.Duration(wait * float64(time.Second))
}
