package spawn

import (
	"testing"
	"time"
)

func TestABurstPassesAtOnceAndAFloodAtItsPace(t *testing.T) {
	now := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	p := newPace(now)
	for range 16 {
		if wait := p.spend(logBurstBytes/16, now); wait != 0 {
			t.Fatalf("a burst waits %s", wait)
		}
	}
	begin, passed := now, 0
	for range 100 {
		now = now.Add(p.spend(1<<20, now))
		passed += 1 << 20
	}
	if rate := float64(passed) / now.Sub(begin).Seconds(); rate < 0.99*logBytesPerSecond || rate > 1.01*logBytesPerSecond {
		t.Errorf("a flood passes at %.0f bytes a second", rate)
	}
	now = now.Add(time.Hour)
	if wait := p.spend(logBurstBytes, now); wait != 0 {
		t.Errorf("after a quiet hour a burst waits %s", wait)
	}
	if wait := p.spend(logBytesPerSecond, now.Add(-time.Hour)); wait != time.Second { // the clock was set back
		t.Errorf("a second's worth waits %s", wait)
	}
}
