//go:build linux

package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if code, done := play(os.Args); done {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// A few rounds of the faults that touch most; the long runs are made by hand.
func TestAFewRoundsBreakNoPromise(t *testing.T) {
	report, err := run(t.Context(), options{
		rounds: 6, seed: 57, // one of each
		python: "python3", say: t.Logf,
		only: "kill python,kill supervisor,kill supervisor and host,suspend launcher,rubbish from worker,no descriptors",
	})
	t.Log(report)
	if err != nil {
		t.Error(err)
	}
}
