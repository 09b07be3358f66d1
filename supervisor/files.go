package supervisor

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// newHolder makes the table of memory files.
func (d *Daemon) newHolder() *spawn.Holder {
	return spawn.NewHolder(spawn.HolderOptions{
		QuotaBytes: d.config.MemoryFileQuota,
		Folder:     d.filesFolder(),
		Free:       d.freeFiles,
	})
}

// filesFolder is where memory files lie on systems where they have names.
func (d *Daemon) filesFolder() string { return filepath.Join(d.config.RuntimeDirectory, "files") }

// memoryRules are what every process that makes memory files keeps to.
func (d *Daemon) memoryRules() api.MemoryRules {
	rules := api.MemoryRules{QuotaBytes: d.config.MemoryFileQuota, PoolBytes: d.config.MemoryFilePool}
	if runtime.GOOS != "linux" {
		rules.Folder = d.filesFolder()
	}
	return rules
}

// spoiled are the files that a forked child of a receiver may still map: their owners are told not to fill them again.
type spoiled struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *spoiled) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[string]struct{})
	}
	s.ids[id] = struct{}{}
}

// take reports whether a file is spoiled, and forgets it.
func (s *spoiled) take(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.ids[id]
	delete(s.ids, id)
	return is
}

// forget forgets the files of an owner that is gone.
func (s *spoiled) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.ids, func(id string, _ struct{}) bool { return strings.HasPrefix(id, owner+"-") })
}

// courier tells one party which of its memory files nobody refers to any more. What frees them may be anybody's reading
// goroutine, which must not wait until this party reads: the telling has a goroutine of its own while there is
// something to tell.
type courier struct {
	daemon *Daemon
	peer   *wire.Peer

	mu      sync.Mutex
	pending []api.FileCount
	running bool
}

// join makes a party known, so that it can be told about its files; Daemon.mu is held.
func (d *Daemon) join(party spawn.Party, peer *wire.Peer) {
	d.couriers[party.ID] = &courier{daemon: d, peer: peer}
}

// leave forgets the way to a party, unless it has another one by now; Daemon.mu is held.
func (d *Daemon) leave(party spawn.Party, peer *wire.Peer) {
	if known := d.couriers[party.ID]; known != nil && known.peer == peer {
		delete(d.couriers, party.ID)
	}
}

// freeFiles is the Holder's word that nobody refers to an owner's files any more. A way to the owner that does not
// exist right now is no loss: it says what it owns when it comes back.
func (d *Daemon) freeFiles(owner string, ids []string) {
	d.mu.Lock()
	way := d.couriers[owner]
	d.mu.Unlock()
	if way == nil {
		return
	}
	way.mu.Lock()
	defer way.mu.Unlock()
	for _, id := range ids {
		way.pending = append(way.pending, api.FileCount{ID: id, Spoiled: d.spoiled.take(id)})
	}
	if !way.running {
		way.running = true
		d.goSafely(way.tell)
	}
}

func (c *courier) tell() {
	for {
		c.mu.Lock()
		files := c.pending
		c.pending = nil
		if len(files) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		_ = c.peer.Notify(&wire.Message{Method: api.MethodMemoryReleased, Params: wire.Params(api.ReleasedParams{Files: files})}, nil)
		// A party that is gone has no pool to put them into.
	}
}

// reserve answers a party that wants to allocate a memory file.
func (d *Daemon) reserve(party spawn.Party, request *wire.Message, reply wire.ReplyFunc) {
	params, err := decode[api.BytesParams](request)
	if err == nil {
		held := int64(-1)
		if params.Held != nil {
			held = max(0, *params.Held)
		}
		err = d.files.Reserve(party.ID, params.Bytes, held)
	}
	if err != nil {
		refuse(reply, wire.AsError(err))
		return
	}
	_ = reply(&wire.Message{}, nil) // a party that is gone is noticed by its reader
}

// returned takes note that a party destroyed a memory file.
func (d *Daemon) returned(party spawn.Party, notification *wire.Message) {
	if params, err := decode[api.BytesParams](notification); err == nil {
		d.files.Return(party.ID, params.Bytes)
	}
}

// released takes note that a party does not map some files any more.
func (d *Daemon) released(party spawn.Party, notification *wire.Message) {
	var params struct {
		Files []struct {
			spawn.FileCount
			Spoiled bool `json:"spoiled"`
		} `json:"files"`
	}
	if json.Unmarshal(notification.Params, &params) != nil {
		return
	}
	counts := make([]spawn.FileCount, len(params.Files))
	for i, file := range params.Files {
		counts[i] = file.FileCount
		if file.Spoiled {
			d.spoiled.add(file.ID)
		}
	}
	d.files.Released(party.ID, counts)
}

// stray takes the files of a reply that nobody waits for, such as one that was meant for an earlier supervisor, and
// gives them back to their owner.
func (d *Daemon) stray(party spawn.Party, reply *wire.Message) {
	if len(reply.Files) == 0 {
		return
	}
	shipment, err := d.files.Receive(party, reply.Files)
	if err != nil {
		d.log.Debug().Err(err).Str("party", party.ID).Msg("the files of a late reply")
		return
	}
	shipment.Discard()
}

// undelivered takes back files that were counted for a party whose message could not be sent.
func (d *Daemon) undelivered(party spawn.Party, files []wire.File) {
	counts := make([]spawn.FileCount, len(files))
	for i, file := range files {
		counts[i] = spawn.FileCount{ID: file.ID, Count: 1}
	}
	d.files.Released(party.ID, counts)
}

// inventory turns what a client says at a reconnect into what the Holder takes.
func inventory(hello api.HelloParams) spawn.Inventory {
	stock := spawn.Inventory{Owned: hello.Owned, ReservedBytes: hello.ReservedBytes}
	var owned int64
	for _, file := range hello.Owned {
		owned += max(0, file.Size)
	}
	stock.ReservedBytes = max(stock.ReservedBytes, owned)
	for _, held := range hello.Holds {
		stock.Holds = append(stock.Holds, spawn.FileCount{ID: held.ID, Count: int64(held.Count)})
	}
	return stock
}

// askInventory asks an adopted worker what memory files it owns and holds, and books the answer.
func (d *Daemon) askInventory(w *worker) error {
	ctx, cancel := d.shortly()
	defer cancel()
	reply, _, err := w.peer.Request(ctx, &wire.Message{Method: api.MethodMemoryInventory, Lane: wire.LaneReader, Generation: w.generation}, nil)
	if err != nil {
		return fmt.Errorf("asking the worker of %s for its memory files: %w", w.place.environment, err)
	}
	var stock spawn.Inventory
	if err := json.Unmarshal(reply.Result, &stock); err != nil {
		return fmt.Errorf("asking the worker of %s for its memory files: %w", w.place.environment, err)
	}
	if err := d.files.Adopt(w.party, stock); err != nil {
		return fmt.Errorf("booking the memory files of %s: %w", w.place.environment, err)
	}
	return nil
}
