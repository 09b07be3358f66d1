package memory

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNothingIsPublishedWhereAProcessReadsTheWholeCard(t *testing.T) {
	reserve := NewReserve(float64(400 * MiB))
	reserve.Card("card", 24*GiB, false)
	reserve.Hold(one, "card", 12*GiB)
	if got, _ := reserve.For(hostA); got != float64(400*MiB) {
		t.Errorf("published %f", got)
	}
}

func TestAPublishedReserveGrowsAtOnceAndShrinksOnlyOnAReceipt(t *testing.T) {
	reserve := NewReserve(float64(600 * MiB))
	reserve.Card("card", 24*GiB, true)
	added := func(party Party) Bytes {
		value, terms := reserve.For(party)
		got, _ := terms.Amount("added")
		if float64(got)+reserve.Base() != value {
			t.Errorf("the terms do not add up to %f: %s", value, terms)
		}
		return got
	}
	check := func(party Party, want Bytes) {
		t.Helper()
		if got := added(party); got != want {
			t.Errorf("added for %s: %s, want %s", party, got, want)
		}
	}
	reserve.Hold(one, "card", 4*GiB)
	reserve.Hold(two, "card", 2*GiB)
	check(hostA, 6*GiB)
	check(one, 2*GiB) // what it holds it sees itself
	reserve.Hold(one, "card", GiB)
	check(hostA, 6*GiB) // a low report is not a receipt
	reserve.Receipt(one, "card", GiB)
	check(hostA, 3*GiB)
	reserve.Receipt(one, "card", 8*GiB)
	check(hostA, 3*GiB) // nor does a receipt raise it
	reserve.Receipt(three, "card", 0)
	check(hostA, 3*GiB) // from a generation that was never charged
	reserve.Hold(one, "card", 30*GiB)
	check(hostA, 18*GiB) // three quarters of the card
	reserve.Gone(one)
	check(hostA, 2*GiB)
}

func TestAReserveNeverShrinksWithoutAReceipt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reserve := NewReserve(rapid.Float64Range(-1e9, 4e9).Draw(t, "base"))
		reserve.Card("card", 24*GiB, true)
		parties := []Party{one, two, three}
		last, _ := reserve.For(hostA)
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				reserve.Hold(rapid.SampledFrom(parties).Draw(t, "who"), "card", Bytes(rapid.Int64().Draw(t, "bytes")))
				now, _ := reserve.For(hostA)
				if now < last {
					t.Fatalf("%f after %f", now, last)
				}
				last = now
			},
			"receipt": func(t *rapid.T) {
				reserve.Receipt(rapid.SampledFrom(parties).Draw(t, "who"), "card", Bytes(rapid.Int64().Draw(t, "bytes")))
				now, _ := reserve.For(hostA)
				if now > last {
					t.Fatalf("a receipt raised it from %f to %f", last, now)
				}
				last = now
			},
			"": func(t *rapid.T) {
				if now, _ := reserve.For(hostA); now < reserve.Base() || now > reserve.Base()+float64(18*GiB) {
					t.Fatalf("%f with a base of %f", now, reserve.Base())
				}
			},
		})
	})
}

func TestThePagersHeadroomFollowsTheReserve(t *testing.T) {
	base := float64(400 * MiB)
	for _, test := range []struct {
		name            string
		seed            Bytes
		published, base float64
		want            Bytes
	}{
		{"nothing published", PagerFloor, base, base, PagerFloor},
		{"a worker's 5 GiB", PagerFloor, base + float64(5*GiB), base, PagerFloor + 5*GiB},
		{"a seed of the operator's", 2 * GiB, base + float64(5*GiB), base, 7 * GiB},
		{"below the pager's own floor", 0, base, base, PagerFloor},
		{"a negative reserve", 0, -base, base, PagerFloor},
		{"absurd", 0, math.MaxFloat64, base, PagerHeadroomLimit},
	} {
		if got := PagerHeadroom(test.seed, test.published, test.base); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if !ForwardHeadroom(GiB, GiB+1) || ForwardHeadroom(GiB, GiB) || ForwardHeadroom(GiB, GiB-255*MiB) || !ForwardHeadroom(GiB, 768*MiB) {
		t.Error("a rise is always worth setting, a fall only beyond the dead zone")
	}
}

func TestCapsAreResolvedAndContradictionsSaid(t *testing.T) {
	size := func(text string) Size {
		parsed, err := ParseSize(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	manifest := Caps{VRAM: size("40%"), Pinned: size("8GiB")}
	settings := Caps{VRAM: size("6GiB")}
	limit, remarks := settings.Over(manifest).Resolve(24*GiB, 64*GiB, float64(400*MiB))
	if limit != (Limit{VRAM: 6 * GiB, Pinned: 8 * GiB}) || remarks != nil {
		t.Errorf("%+v %q", limit, remarks)
	}
	for _, test := range []struct {
		caps Caps
		want string
	}{
		{Caps{VRAM: size("1GiB")}, "nothing can be loaded under it"},
		{Caps{VRAM: size("48GiB")}, "limits nothing"},
		{Caps{Pinned: size("8GiB"), Resident: size("4GiB")}, "4.00 GiB is used for both"},
		{Caps{Pinned: size("1GiB")}, "below 2.00 GiB"},
		{Caps{Resident: size("100MiB")}, "180 to 550 MB"},
	} {
		_, remarks := test.caps.Resolve(24*GiB, 64*GiB, 0)
		if len(remarks) != 1 || !strings.Contains(remarks[0], test.want) {
			t.Errorf("%+v: %q, want one that says %q", test.caps, remarks, test.want)
		}
	}
	if got := CapHeadroom(24*GiB, 6*GiB); got != 18*GiB {
		t.Errorf("headroom under a cap: %s", got)
	}
	if got := CapHeadroom(24*GiB, 24*GiB); got != PagerFloor {
		t.Errorf("headroom under a cap that limits nothing: %s", got)
	}
}

func TestAWorkerNearItsResidentCapLetsGoOfItsPinsFirst(t *testing.T) {
	plan := HoldResident([]ResidentState{
		{Party: one, Phase: Ready, Resident: 10 * GiB, Pinned: 4 * GiB, Cap: 8 * GiB},
		{Party: two, Phase: Ready, Resident: 10 * GiB, Shared: 4 * GiB, Cap: 8 * GiB},
		{Party: three, Phase: Ready, Resident: 10 * GiB, Cap: 8 * GiB},
		{Party: foreignHostsWork, Phase: Busy, Resident: 10 * GiB, Cap: 8 * GiB},
		{Party: hostA, Phase: Gone, Resident: 10 * GiB, Pinned: GiB, Cap: 8 * GiB},
	})
	if got, want := plan.String(), "release_pins of a/one#1, 2.80 GiB, because resident_cap: resident 10.00 GiB, shared files of ours 0 B, cap 8.00 GiB, asked from 7.20 GiB, pinned 4.00 GiB\n"+
		"full_release of a/three#1, because resident_cap: resident 10.00 GiB, shared files of ours 0 B, cap 8.00 GiB, asked from 7.20 GiB, pinned 0 B"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
