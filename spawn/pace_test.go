package spawn

import (
	"testing"
	"time"
)

func TestABurstPassesFastAndAFloodAtItsPace(t *testing.T) {
	now := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	p := newPace(now)
	// pass spends as fast as it may, and returns bytes a second.
	pass := func(bytes int) float64 {
		begin, passed := now, 0
		for ; passed < bytes; passed += 1 << 16 {
			now = now.Add(p.spend(1<<16, now))
		}
		return float64(passed) / now.Sub(begin).Seconds()
	}
	const tolerance = 0.01
	if rate := pass(logBurstBytes) / logPeakBytesPerSecond; rate < 1-tolerance || rate > 1+tolerance {
		t.Errorf("a burst passes at %.2f of its pace", rate)
	}
	for p.left > 0 { // it has grown meanwhile
		pass(1 << 16)
	}
	if rate := pass(100<<20) / logBytesPerSecond; rate < 1-tolerance || rate > 1+tolerance {
		t.Errorf("a flood passes at %.2f of its pace", rate)
	}
	now = now.Add(time.Hour)
	if rate := pass(logBurstBytes) / logPeakBytesPerSecond; rate < 1-tolerance || rate > 1+tolerance {
		t.Errorf("after a quiet hour a burst passes at %.2f of its pace", rate)
	}
	before := p.left
	if p.spend(1, now.Add(-time.Hour)); p.left != before-1 { // the clock was set back
		t.Errorf("an hour back leaves %.0f of %.0f bytes", p.left, before)
	}
}
