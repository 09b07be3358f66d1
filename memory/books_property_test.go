package memory

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ledgerWorld lets anything happen to the books, in any order, absurd reports included, and looks at what must hold.
type ledgerWorld struct {
	books    *Books
	now      time.Time
	parties  []Party
	dead     []Party
	phases   map[Party]Phase
	asks     []Ask
	answered map[string]int
	sequence map[Party]uint64
	pending  []Action
	serial   int
}

func newLedgerWorld() *ledgerWorld {
	w := &ledgerWorld{books: NewBooks(DefaultRules()), now: noon, phases: map[Party]Phase{}, answered: map[string]int{}, sequence: map[Party]uint64{}}
	for _, session := range []string{"a", "b"} {
		w.join(Host(session))
	}
	return w
}

func (w *ledgerWorld) join(party Party) {
	w.books.Join(w.now, party)
	w.parties = append(w.parties, party)
	w.phases[party] = Starting
	if party.IsHost() {
		w.phases[party] = Ready
	}
}

// anyParty is mostly a living one, sometimes one that is gone.
func (w *ledgerWorld) anyParty(t *rapid.T) Party {
	if len(w.dead) > 0 && rapid.IntRange(0, 9).Draw(t, "dead") == 0 {
		return rapid.SampledFrom(w.dead).Draw(t, "who was")
	}
	return rapid.SampledFrom(w.parties).Draw(t, "who")
}

func anyAmount(t *rapid.T, name string) Bytes {
	switch rapid.IntRange(0, 9).Draw(t, name+" kind") {
	case 0:
		return Bytes(rapid.Int64().Draw(t, name))
	case 1:
		return -Bytes(rapid.Int64Range(0, int64(4*GiB)).Draw(t, name))
	}
	return Bytes(rapid.Int64Range(0, int64(20*GiB)).Draw(t, name))
}

func anyDevice(t *rapid.T) string {
	return rapid.SampledFrom([]string{"card 0", "card 1"}).Draw(t, "device")
}

// take checks one outcome.
func (w *ledgerWorld) take(t *rapid.T, out Outcome) {
	forced := map[string]bool{}
	for _, answer := range out.Answers {
		w.answered[answer.Ask]++
		if answer.Verdict == Forced {
			forced[answer.Device] = true
		}
		if answer.Lease < 0 {
			t.Fatalf("a lease of %s", answer.Lease)
		}
	}
	for _, answer := range out.Answers {
		card := w.books.cards[answer.Device]
		if (answer.Verdict == Granted || answer.Verdict == Short) && w.answered[answer.Ask] == 1 && w.books.leases[answer.Ask] != nil && !forced[answer.Device] {
			if left := w.books.available(card); left < 0 {
				t.Fatalf("%s was granted %s, and now %s more is promised than the %s that were measured free", answer.Party, answer.Lease, -left, card.reading.Free)
			}
		}
	}
	for _, action := range out.Actions {
		m := w.books.members[action.Party]
		switch {
		case m == nil:
			t.Fatalf("%s, who is gone", action)
		case !m.party.IsHost() && m.waits == 0 && !m.phase.Idle():
			t.Fatalf("%s, who is %s", action, m.phase)
		case action.Bytes <= 0 || len(action.Terms) == 0:
			t.Fatalf("%s", action)
		}
	}
	w.pending = append(w.pending, out.Actions...)
	w.check(t, out)
}

// check looks at what must hold after everything.
func (w *ledgerWorld) check(t *rapid.T, out Outcome) {
	if stuck := w.books.stuckWaits(); len(stuck) > 0 {
		t.Fatalf("%d loads wait for each other, and nobody broke it: first %+v", len(stuck), stuck[0].ask)
	}
	for _, lease := range w.books.leases {
		if w.books.members[lease.Party] == nil {
			t.Fatalf("the lease of %s outlived it", lease.Party)
		}
	}
	perParty := map[string]bool{}
	for _, c := range w.books.order {
		for _, lease := range c.leases {
			key := lease.Party.String() + lease.Device
			if perParty[key] {
				t.Fatalf("two leases of %s on %s", lease.Party, lease.Device)
			}
			perParty[key] = true
		}
		for _, waiting := range c.queue {
			if out.Next.IsZero() || out.Next.After(waiting.deadline) {
				t.Fatalf("nothing will wake the books before the deadline of %s: next %v", waiting.ask.ID, out.Next)
			}
		}
	}
	for ask, times := range w.answered {
		if w.books.waiting[ask] != nil {
			t.Fatalf("%s was answered %d times and still waits", ask, times)
		}
	}
}

func TestWhateverHappensTheBooksKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newLedgerWorld()
		t.Repeat(map[string]func(*rapid.T){
			"a worker comes": func(t *rapid.T) {
				w.serial++
				party := Party{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session"), fmt.Sprint("w", w.serial), 1}
				w.join(party)
				w.phase(t, party, Ready)
			},
			"a party goes": func(t *rapid.T) {
				party := w.anyParty(t)
				w.take(t, w.books.Gone(w.now, party))
				for i := range w.parties {
					if w.parties[i] == party {
						w.parties = append(w.parties[:i:i], w.parties[i+1:]...)
						w.dead = append(w.dead, party)
						break
					}
				}
				if len(w.parties) == 0 {
					w.serial++
					w.join(Host(fmt.Sprint("host ", w.serial)))
				}
			},
			"a phase": func(t *rapid.T) {
				w.phase(t, w.anyParty(t), rapid.SampledFrom([]Phase{Ready, Busy, Busy, Released, Stopping}).Draw(t, "phase"))
			},
			"a report": func(t *rapid.T) {
				party := w.anyParty(t)
				w.sequence[party] += uint64(rapid.IntRange(0, 2).Draw(t, "step"))
				census := Census{Party: party, Sequence: w.sequence[party], Devices: []DeviceCensus{{
					Device: anyDevice(t), Held: anyAmount(t, "held"), Overhead: anyAmount(t, "overhead"), Context: rapid.Bool().Draw(t, "context"),
					Models: []ModelCensus{{Name: "m", Size: anyAmount(t, "size"), Resident: anyAmount(t, "resident")}}, TorchIdle: anyAmount(t, "idle")}}}
				w.take(t, w.books.Census(w.now, census))
			},
			"a reading": func(t *rapid.T) {
				reading := Reading{Device: anyDevice(t), Total: 24 * GiB, Source: FromDriver, Free: Bytes(rapid.Int64Range(-int64(GiB), int64(25*GiB)).Draw(t, "free")),
					At:         w.now.Add(-time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "age")) * time.Duration(rapid.IntRange(0, 1).Draw(t, "old"))),
					Attributed: rapid.Bool().Draw(t, "attributed"), ProcessLocal: rapid.Bool().Draw(t, "local")}
				reading.Processes = map[Party]Bytes{w.anyParty(t): anyAmount(t, "by the driver")}
				w.take(t, w.books.Reading(w.now, reading))
			},
			"an ask": func(t *rapid.T) {
				w.serial++
				ask := Ask{ID: fmt.Sprint("ask ", w.serial), Party: w.anyParty(t), Device: anyDevice(t), Advice: anyAmount(t, "advice"), Keep: anyAmount(t, "keep"),
					LargestTensor: anyAmount(t, "tensor"), Streams: rapid.IntRange(-1, 3).Draw(t, "streams"), Context: rapid.Bool().Draw(t, "context"),
					Load: Load{Weights: anyAmount(t, "weights"), Activation: float64(anyAmount(t, "activation")), Minimum: -1, Reserve: float64(anyAmount(t, "reserve"))}}
				w.asks = append(w.asks, ask)
				w.take(t, w.books.Ask(w.now, ask))
			},
			"an ask again": func(t *rapid.T) {
				if len(w.asks) == 0 {
					t.Skip("none yet")
				}
				before := len(w.books.leases)
				w.take(t, w.books.Ask(w.now, rapid.SampledFrom(w.asks).Draw(t, "which")))
				if len(w.books.leases) > before {
					t.Fatal("an ask that came twice opened a second lease")
				}
			},
			"a load's end": func(t *rapid.T) {
				held := anyAmount(t, "held")
				w.ofAsk(t, func(now time.Time, ask string) Outcome { return w.books.Resident(now, ask, held) })
			},
			"a computation's end": func(t *rapid.T) {
				w.ofAsk(t, w.books.Finished)
			},
			"a withdrawal": func(t *rapid.T) { w.ofAsk(t, w.books.Withdraw) },
			"a receipt": func(t *rapid.T) {
				receipt := Receipt{Party: w.anyParty(t), Device: anyDevice(t), Freed: anyAmount(t, "freed"), Held: anyAmount(t, "left")}
				if len(w.pending) > 0 && rapid.Bool().Draw(t, "asked") {
					action := rapid.SampledFrom(w.pending).Draw(t, "action")
					receipt.Party, receipt.Device = action.Party, action.Device
				}
				w.take(t, w.books.Receipt(w.now, receipt))
			},
			"relief": func(t *rapid.T) { w.take(t, w.books.Relieve(w.now)) },
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(40*time.Second)).Draw(t, "span")))
				w.take(t, w.books.Tick(w.now))
				for _, c := range w.books.order {
					for _, waiting := range c.queue {
						if !w.now.Before(waiting.deadline) {
							t.Fatalf("%s waits beyond its deadline", waiting.ask.ID)
						}
					}
				}
			},
		})
		// time alone answers everybody
		for range 3 {
			w.now = w.now.Add(DefaultRules().AskWait)
			w.take(t, w.books.Tick(w.now))
		}
		for _, ask := range w.asks {
			if w.answered[ask.ID] == 0 {
				t.Fatalf("%s was never answered", ask.ID)
			}
		}
	})
}

func (w *ledgerWorld) phase(t *rapid.T, party Party, phase Phase) {
	w.phases[party] = phase
	w.take(t, w.books.Phase(w.now, party, phase, rapid.Bool().Draw(t, "prompt over")))
}

func (w *ledgerWorld) ofAsk(t *rapid.T, do func(time.Time, string) Outcome) {
	if len(w.asks) == 0 {
		t.Skip("none yet")
	}
	w.take(t, do(w.now, rapid.SampledFrom(w.asks).Draw(t, "which").ID))
}

func BenchmarkAnAskThatNeedsNoRelease(b *testing.B) {
	for _, count := range []int{10, 100, 1_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			books := NewBooks(DefaultRules())
			asker := fillBooks(books, count)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				books.Reading(noon, Reading{Device: "card", At: noon, Source: FromDriver, Total: 80 * GiB, Free: 20 * GiB})
				out := books.Ask(noon, Ask{ID: fmt.Sprint(i), Party: asker, Device: "card", Load: Load{Weights: 4 * GiB, Minimum: -1}})
				if len(out.Answers) != 1 || out.Answers[0].Verdict != Granted {
					b.Fatalf("%+v", out)
				}
				books.Finished(noon, out.Answers[0].Ask)
			}
		})
	}
}

func fillBooks(books *Books, count int) (asker Party) {
	for i := range count {
		asker = Party{"s", fmt.Sprintf("w%05d", i), 1}
		books.Join(noon, asker)
		books.Phase(noon, asker, Ready, true)
		books.Census(noon, Census{Party: asker, Sequence: 1, Pinned: GiB, LargestModel: GiB, Devices: []DeviceCensus{{Device: "card", Held: 60 * GiB / Bytes(count), Context: true}}})
	}
	return asker
}

func BenchmarkAWholeSweep(b *testing.B) {
	for _, count := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			books := NewBooks(DefaultRules())
			fillBooks(books, count)
			books.Reading(noon, Reading{Device: "card", At: noon, Source: FromDriver, Total: 80 * GiB, Free: GiB / 2})
			later := noon.Add(50 * time.Second)
			b.ReportAllocs()
			for b.Loop() {
				workers := books.Workers()
				Sweep(later, workers, DefaultLimits(), books.Cards())
				books.Relieve(later)
				pinners := make([]Pinner, 1, count+1)
				pinners[0] = Pinner{Party: Host("s"), Ceiling: float64(200 * GiB), InForce: 10 * GiB}
				for i := range workers {
					pinners = append(pinners, Pinner{Party: workers[i].Party, InForce: 16 * MiB, Pinned: GiB / 8, LargestModel: GiB, Live: i%2 == 0})
				}
				SplitPins(pinners, PinRAM{})
			}
		})
	}
}
