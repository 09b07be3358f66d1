package spawn

import "time"

// A launcher hands on a burst of output at once, and then no more than logBytesPerSecond of it, each line with its
// overhead: a flood must not keep its supervisor, which serves every other worker, busy with lines that the log has no
// room for anyway. Python never waits for that; what the spool has no room for is counted.
const (
	logBurstBytes     = 16 << 20
	logBytesPerSecond = 8 << 20
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
	if p.left >= 0 {
		return 0
	}
	return time.Duration(-p.left / logBytesPerSecond * float64(time.Second))
}
