package supervisor

import (
	"testing"
	"time"
)

func TestAClockThatIsSetNeitherProlongsAPauseNorForgetsACrash(t *testing.T) {
	t.Parallel()
	limits := DefaultCrashLimits()
	now := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC) // of the wall: without what the kernel counts
	record := newRecord(1, nil, 0, now)
	crash := func() {
		record.State = Ready
		record, _ = Step(record, Message{Kind: Exited, Cause: "ended by SIGKILL"}, now, limits)
	}
	crash()
	crash()
	if record.State != Backoff || len(record.Crashes) != 2 {
		t.Fatalf("after two crashes: %+v", record)
	}
	if early, _ := Step(record, Message{Kind: CallArrived}, now, limits); early.State != Backoff {
		t.Errorf("the pause ends at once: %+v", early)
	}
	now = now.Add(-time.Hour)
	after, actions := Step(record, Message{Kind: CallArrived}, now, limits)
	if after.State != Gone || len(actions) != 2 {
		t.Errorf("after the clock was set back, a call leads to %+v, %v", after, actions)
	}
	crash()
	crash()
	if len(record.Crashes) != 4 || record.Crashes[0].After(now) {
		t.Errorf("crashes before the clock was set back are %v", record.Crashes)
	}
	crash()
	if record.State != Quarantined {
		t.Errorf("after five crashes: %+v", record)
	}
	now = now.Add(limits.CrashWindow)
	crash()
	if record.State != Gone || len(record.Crashes) != 1 {
		t.Errorf("crashes of long ago count: %+v", record)
	}
}

func TestTheClockOfPausesAndLimitsIsNotTheWalls(t *testing.T) {
	t.Parallel()
	record := newRecord(1, nil, 0, time.Now())
	record.State = Ready
	limits := DefaultCrashLimits()
	limits.Backoff = []time.Duration{time.Minute}
	record, _ = Step(record, Message{Kind: Exited}, time.Now(), limits)
	for name, at := range map[string]time.Time{"since": record.Since, "backoff": record.BackoffUntil, "crash": record.Crashes[0]} {
		if at == at.Round(0) { // which takes the kernel's count away
			t.Errorf("%s is a time of the wall alone", name)
		}
	}
}
