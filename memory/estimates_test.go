package memory

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"
)

func TestEstimatesOfTwoAttentionBackendsAreConvertedOrMarkedNeverMixed(t *testing.T) {
	flash, split := Attention{"pytorch", true}, Attention{"split", false}
	area, factor := 1024.0*1024, 2.0
	compact, loose := ActivationEstimate(area, 2, factor, flash), ActivationEstimate(area, 2, factor, split)
	if ratio := loose / compact; math.Abs(ratio-7.5) > 1e-9 {
		t.Errorf("at two bytes an element they differ %f times", ratio)
	}
	for _, test := range []struct {
		from, to Attention
		in, want float64
	}{{flash, split, compact, loose}, {split, flash, loose, compact}, {flash, Attention{"sage", true}, compact, compact}} {
		got, ok := ConvertEstimate(test.in, test.from, test.to, 2)
		if !ok || math.Abs(got-test.want) > test.want*1e-12 {
			t.Errorf("%s to %s: %f, %v; want %f", test.from.Name, test.to.Name, got, ok, test.want)
		}
	}
	if got, ok := ConvertEstimate(compact, flash, split, 0); ok || got != compact {
		t.Errorf("of an unknown element size: %f, %v", got, ok)
	}
}

func TestAMeasuredPeakRisesAtOnceAndFadesSlowly(t *testing.T) {
	var estimates Estimates
	key := EstimateKey{"KSampler", "RTX 3090", "pytorch"}
	if _, ok := estimates.Advice(key); ok {
		t.Error("advice on what was never measured")
	}
	advice := func() Bytes { bytes, _ := estimates.Advice(key); return bytes }
	estimates.Observe(noon, key, 2*GiB)
	estimates.Observe(noon, key, 4*GiB)
	if got := advice(); got != 4*GiB {
		t.Errorf("after a higher peak: %s", got)
	}
	estimates.Observe(noon, key, 2*GiB)
	if got, want := advice(), 4*GiB-256*MiB; got != want {
		t.Errorf("after a lower one: %s, want %s", got, want)
	}
	for _, absurd := range []Bytes{-GiB, 0, math.MaxInt64} {
		estimates.Observe(noon, key, absurd)
	}
	if got, want := advice(), 4*GiB-256*MiB; got != want {
		t.Errorf("after absurd ones: %s, want %s", got, want)
	}
	small := EstimateKey{"Small", "RTX 3090", "pytorch"}
	estimates.Observe(noon, small, MiB)
	if got, _ := estimates.Advice(small); got != 858993460 { // 0.8 GiB
		t.Errorf("advice below upstream's minimum: %s", got)
	}
}

func TestMeasurementsOutliveTheProcessAndStayBounded(t *testing.T) {
	var estimates Estimates
	for i := range estimatesKept + 10 {
		estimates.Observe(noon.Add(time.Duration(i)*time.Second), EstimateKey{fmt.Sprintf("node %05d", i), "card", "a"}, GiB+Bytes(i))
	}
	text, err := json.Marshal(&estimates)
	if err != nil {
		t.Fatal(err)
	}
	var again Estimates
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if len(again.peaks) != estimatesKept {
		t.Errorf("%d measurements are kept, want %d", len(again.peaks), estimatesKept)
	}
	if _, ok := again.Advice(EstimateKey{"node 00009", "card", "a"}); ok {
		t.Error("the oldest was not forgotten")
	}
	if got, ok := again.Advice(EstimateKey{"node 00010", "card", "a"}); !ok || got != GiB+10 {
		t.Errorf("%s, %v", got, ok)
	}
	if json.Unmarshal([]byte(`{"not": "a list"}`), &again) == nil {
		t.Error("a broken file was read")
	}
	if err := json.Unmarshal([]byte(`[{"node":"","peak":5},{"node":"x","peak":-5}]`), &again); err != nil || len(again.peaks) != 0 {
		t.Errorf("impossible entries were kept: %v %v", again.peaks, err)
	}
}
