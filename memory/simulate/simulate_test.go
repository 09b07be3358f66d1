package simulate

import (
	"os"
	"testing"
)

func TestTable(t *testing.T) {
	var results []Result
	for _, scenario := range Standard() {
		for _, mode := range []Mode{Independent, Coordinated, Oracle} {
			results = append(results, Run(scenario, mode))
		}
	}
	if err := WriteTable(os.Stdout, results); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Mode != Independent {
			t.Logf("%s %s: short %d withdrawn %d cycles %d forcedOver %d forcedOOM %d pinsOver %d pinsLate %d mostPinned %s overcommit %s reaped %d events %d processes %d", r.Scenario, r.Mode, r.Short, r.Withdrawn, r.Cycles, r.ForcedOver, r.ForcedOutOfMemory, r.PinsOver, r.PinsLate, r.MostPinned, r.Overcommitted, r.Reaped, r.Events, r.Processes)
		}
	}
}
