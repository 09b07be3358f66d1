package spawn

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// freed collects what a Holder announces.
type freed struct {
	mu  sync.Mutex
	ids map[string][]string
}

func (f *freed) add(owner string, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids[owner] = append(f.ids[owner], ids...)
}

func (f *freed) take() map[string][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := f.ids
	f.ids = make(map[string][]string)
	for _, list := range ids {
		slices.Sort(list)
	}
	return ids
}

func newTestHolder(t testing.TB, quota int64) (*Holder, *freed, testFiles) {
	t.Helper()
	f := &freed{ids: make(map[string][]string)}
	files := newTestFiles(t)
	holder := NewHolder(HolderOptions{QuotaBytes: quota, Folder: files.folder(), Free: f.add})
	t.Cleanup(holder.Close)
	return holder, f, files
}

func expectFreed(t testing.TB, f *freed, want map[string][]string) {
	t.Helper()
	if want == nil {
		want = map[string][]string{}
	}
	if difference := cmp.Diff(want, f.take()); difference != "" {
		t.Error("freed:", difference)
	}
}

func receive(t testing.TB, holder *Holder, from Party, files ...wire.File) *Shipment {
	t.Helper()
	shipment, err := holder.Receive(from, files)
	if err != nil {
		t.Fatal(err)
	}
	return shipment
}

func TestAFileIsHeldUntilItsLastReceiverReleasesIt(t *testing.T) {
	holder, freed, files := newTestHolder(t, 1<<30)
	host, a, b := files.party("host"), files.party("a"), files.party("b")
	file := files.make(t, "host-1", "content")
	shipment := receive(t, holder, host, file)
	offered := shipment.Deliver(a)
	if got := files.read(t, offered[0]); got != "content" {
		t.Errorf("content %q", got)
	}
	shipment.Deliver(b) // a shipment is delivered once
	if holds := holder.Usage().Holders; holds["b"] != 0 || holds["a"] != 1 {
		t.Errorf("holders %v", holds)
	}
	// a passes it on, by reference: it is known, and not opened again, so a's descriptor does not matter.
	again := file
	again.FD = 9999
	receive(t, holder, a, again).Deliver(b)
	receive(t, holder, a, again).Deliver(b)
	expectFreed(t, freed, nil)
	holder.Released("a", []FileCount{{"host-1", 1}})
	holder.Released("b", []FileCount{{"host-1", 1}})
	expectFreed(t, freed, nil)
	holder.Released("b", []FileCount{{"host-1", 1}})
	expectFreed(t, freed, map[string][]string{"host": {"host-1"}})
	if usage := holder.Usage(); usage.Files != 0 || len(usage.Holders) != 0 {
		t.Errorf("usage %+v", usage)
	}
}

func TestAReleaseThatCrossesADeliveryCountsOnlyWhatItSaw(t *testing.T) {
	holder, freed, files := newTestHolder(t, 1<<30)
	host, a := files.party("host"), files.party("a")
	file := files.make(t, "host-1", "content")
	receive(t, holder, host, file).Deliver(a)
	receive(t, holder, host, file).Deliver(a)
	holder.Released("a", []FileCount{{"host-1", 1}}) // sent before the second delivery arrived
	expectFreed(t, freed, nil)
	holder.Released("a", []FileCount{{"host-1", 5}, {"host-2", 1}, {"nonsense", -1}}) // more than there is
	expectFreed(t, freed, map[string][]string{"host": {"host-1"}})
}

func TestAFileOnItsWaySurvivesAndADiscardedOneDoesNot(t *testing.T) {
	holder, freed, files := newTestHolder(t, 1<<30)
	worker, host := files.party("worker"), files.party("host")
	file := files.make(t, "worker-1", "the result")
	shipment := receive(t, holder, worker, file)
	holder.Drop("worker") // it died after its reply
	files.close(t, file)
	offered := shipment.Deliver(host)
	if got := files.read(t, offered[0]); got != "the result" {
		t.Errorf("content %q", got)
	}
	expectFreed(t, freed, nil)
	second := receive(t, holder, host, files.make(t, "host-1", "x"))
	second.Discard()
	second.Discard()
	expectFreed(t, freed, map[string][]string{"host": {"host-1"}})
	holder.Drop("host")
	expectFreed(t, freed, nil) // the worker is gone: nobody to tell
	if usage := holder.Usage(); usage.Files != 0 || usage.ReservedBytes != 0 {
		t.Errorf("usage %+v", usage)
	}
}

func TestADeathReleasesWhatItHeld(t *testing.T) {
	holder, freed, files := newTestHolder(t, 1<<30)
	host, a, b := files.party("host"), files.party("a"), files.party("b")
	one, two := files.make(t, "host-1", "1"), files.make(t, "host-2", "2")
	receive(t, holder, host, one, two).Deliver(a)
	receive(t, holder, host, two).Deliver(b)
	holder.Drop("a")
	expectFreed(t, freed, map[string][]string{"host": {"host-1"}})
	holder.Drop("a")
	holder.Drop("b")
	expectFreed(t, freed, map[string][]string{"host": {"host-2"}})
}

func TestTheQuotaIsOneForAllAndOutlivesAnOwner(t *testing.T) {
	holder, _, files := newTestHolder(t, 100)
	worker, host := files.party("worker"), files.party("host")
	if err := holder.Reserve("worker", 60, -1); err != nil {
		t.Fatal(err)
	}
	err := holder.Reserve("host", 41, -1)
	var wireError *wire.Error
	if !errors.As(err, &wireError) || wireError.Data.Kind != wire.KindQuota {
		t.Fatalf("error %v", err)
	}
	if err := holder.Reserve("host", 40, -1); err != nil {
		t.Error(err)
	}
	holder.Return("host", 1000) // more than it has
	content := fmt.Sprintf("%060d", 0)[:50]
	shipment := receive(t, holder, worker, files.make(t, "worker-1", content))
	shipment.Deliver(host)
	holder.Drop("worker") // 10 bytes were pooled; 50 are still mapped by the host
	if usage := holder.Usage(); usage.ReservedBytes != 50 {
		t.Errorf("usage %+v", usage)
	}
	if err := holder.Reserve("host", 51, -1); err == nil {
		t.Error("mapped files of a dead owner do not count")
	}
	holder.Released("host", []FileCount{{"worker-1", 1}})
	if usage := holder.Usage(); usage.ReservedBytes != 0 || len(usage.Owners) != 0 {
		t.Errorf("usage %+v", usage)
	}
	for range 2 { // the answer to the first got lost
		if err := holder.Reserve("worker", 10, 20); err != nil {
			t.Error(err)
		}
	}
	if usage := holder.Usage(); usage.Owners["worker"] != 30 {
		t.Errorf("a request that was repeated is booked as %+v", usage)
	}
	if err := holder.Reserve("nobody", 1000, 0); err == nil || holder.Usage().Owners["nobody"] != 0 {
		t.Errorf("beyond the quota: %v, %+v", err, holder.Usage())
	}
	if err := holder.Reserve("host", 1<<62, 1<<62); err == nil {
		t.Error("a sum that overflows was booked")
	}
	if err := holder.Reserve("host", -1, -1); err == nil {
		t.Error("a negative reservation")
	}
}

func TestWhatIsNotAsTheMessageSaysIsRefused(t *testing.T) {
	holder, freed, files := newTestHolder(t, 1<<30)
	host := files.party("host")
	good := files.make(t, "host-1", "content")
	for name, file := range files.wrong(t, good) {
		if _, err := holder.Receive(host, []wire.File{good, file}); err == nil {
			t.Errorf("%s was accepted", name)
		} else {
			t.Log(err)
		}
	}
	freed.take()
	if usage := holder.Usage(); usage.Files != 0 {
		t.Errorf("refused messages left %d files", usage.Files)
	}
	receive(t, holder, host, good).Deliver(files.party("a"))
	changed := good
	changed.Size++
	if _, err := holder.Receive(host, []wire.File{changed}); err == nil {
		t.Error("a known file with another size was accepted")
	}
}

func TestARestartedSupervisorLearnsWhoHoldsWhat(t *testing.T) {
	holder, freed, files := newTestHolder(t, 1<<30)
	host, worker := files.party("host"), files.party("worker")
	mapped, lost, pooled := files.make(t, "worker-1", "mapped"), files.make(t, "worker-2", "lost on its way"), files.make(t, "host-7", "x")
	// The host answers first, and holds what nobody has told us of yet.
	if err := holder.Adopt(host, Inventory{
		Owned: []wire.File{pooled}, Holds: []FileCount{{"worker-1", 2}, {"gone-1", 1}}, ReservedBytes: 1000,
	}); err != nil {
		t.Fatal(err)
	}
	if err := holder.Adopt(worker, Inventory{Owned: []wire.File{mapped, lost}, Holds: []FileCount{{"host-7", 1}}, ReservedBytes: 500}); err != nil {
		t.Fatal(err)
	}
	holder.Settle()
	expectFreed(t, freed, map[string][]string{"worker": {"worker-2"}})
	if usage := holder.Usage(); usage.ReservedBytes != 1500 || usage.Holders["host"] != 2 {
		t.Errorf("usage %+v", usage)
	}
	// It can be passed on from what was opened at the adoption.
	offered := receive(t, holder, host, mapped).Files()
	if got := files.read(t, offered[0]); got != "mapped" {
		t.Errorf("content %q", got)
	}
	// A party that answers again replaces what it said.
	if err := holder.Adopt(host, Inventory{Owned: []wire.File{pooled}, ReservedBytes: 10}); err != nil {
		t.Fatal(err)
	}
	if usage := holder.Usage(); usage.ReservedBytes != 510 || usage.Holders["host"] != 0 {
		t.Errorf("usage %+v", usage)
	}
	if err := holder.Adopt(worker, Inventory{Owned: []wire.File{{ID: "host-9"}, {ID: "bad"}}, Holds: []FileCount{{"host-7", -1}}}); err == nil {
		t.Error("an inventory with nonsense is no error")
	}
}

func TestAClosedHolderKeepsNothing(t *testing.T) {
	holder, _, files := newTestHolder(t, 1<<30)
	host := files.party("host")
	file := files.make(t, "host-1", "content")
	shipment := receive(t, holder, host, file)
	holder.Close()
	shipment.Deliver(files.party("a"))
	if _, err := holder.Receive(host, []wire.File{file}); err == nil {
		t.Error("it still receives")
	}
	if err := holder.Reserve("host", 1, -1); err == nil {
		t.Error("it still reserves")
	}
	holder.Released("a", []FileCount{{"host-1", 1}})
	holder.Drop("host")
	if usage := holder.Usage(); usage.Files != 0 || usage.ReservedBytes != 0 {
		t.Errorf("usage %+v", usage)
	}
}

// TestTheBooksAlwaysBalance compares a Holder with plain counting, for arbitrary histories.
func TestTheBooksAlwaysBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		announced := make(map[string]int)
		files := newTestFiles(t)
		holder := NewHolder(HolderOptions{QuotaBytes: 1 << 30, Folder: files.folder(), Free: func(_ string, ids []string) {
			for _, id := range ids {
				announced[id]++
			}
		}})
		defer holder.Close()
		names := []string{"a", "b", "c"}
		type key struct{ party, id string }
		holds := make(map[key]int64)
		transit := make(map[*Shipment]string)
		known := make(map[string]wire.File)
		made := 0
		references := func(id string) (count int64) {
			for hold, number := range holds {
				if hold.id == id {
					count += number
				}
			}
			for _, other := range transit {
				if other == id {
					count++
				}
			}
			return count
		}
		expected := make(map[string]int)
		settled := func(id string) {
			if references(id) == 0 && known[id].ID != "" {
				expected[id]++
				files.close(t, known[id])
				delete(known, id)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			party := rapid.SampledFrom(names).Draw(t, "party")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0: // a new file sets out
				made++
				id := fmt.Sprintf("%s-%d", party, made)
				file := files.make(t, id, "content")
				shipment, err := holder.Receive(files.party(party), []wire.File{file})
				if err != nil {
					t.Fatal(err)
				}
				known[id] = file
				transit[shipment] = id
			case 1: // one that a party holds is passed on
				for hold := range holds {
					if hold.party == party {
						shipment, err := holder.Receive(files.party(party), []wire.File{known[hold.id]})
						if err != nil {
							t.Fatal(err)
						}
						transit[shipment] = hold.id
						break
					}
				}
			case 2: // one arrives
				for shipment, id := range transit {
					shipment.Deliver(files.party(party))
					delete(transit, shipment)
					holds[key{party, id}]++
					break
				}
			case 3: // one does not
				for shipment, id := range transit {
					shipment.Discard()
					delete(transit, shipment)
					settled(id)
					break
				}
			case 4: // some views are collected
				for hold, count := range holds {
					if hold.party == party {
						released := rapid.Int64Range(1, count).Draw(t, "released")
						holder.Released(party, []FileCount{{hold.id, released}})
						if holds[hold] -= released; holds[hold] == 0 {
							delete(holds, hold)
						}
						settled(hold.id)
						break
					}
				}
			}
			if difference := cmp.Diff(expected, announced); difference != "" {
				t.Fatal("freed:", difference)
			}
			if usage := holder.Usage(); usage.Files != len(known) {
				t.Fatalf("%d files are held, %d are referred to", usage.Files, len(known))
			}
		}
	})
}
