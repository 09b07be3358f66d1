package simulate

import "github.com/comfy-supervisor/comfy-supervisor/memory"

// device is the truth about one card.
type device struct {
	name         string
	total        memory.Bytes
	driver       memory.Bytes
	processLocal bool
	foreign      memory.Bytes
	used         memory.Bytes // by processes of ours
	overcommit   memory.Bytes // the most that was ever used beyond the card
	processes    []*process   // of the sessions that use it
	loads        []*load      // that were let go on and have not ended
}

// free is what is left; below zero on an over-admitted process-local card.
func (d *device) free() memory.Bytes {
	return d.total - d.driver - d.foreign - d.used
}

// take takes bytes for a process; false: there are not that many.
func (d *device) take(p *process, bytes memory.Bytes) bool {
	if bytes > d.free() && !d.processLocal {
		return false
	}
	d.used += bytes
	p.onCard += bytes
	if over := -d.free(); over > d.overcommit {
		d.overcommit = over
	}
	return true
}

// give returns bytes of a process.
func (d *device) give(p *process, bytes memory.Bytes) {
	d.used -= bytes
	p.onCard -= bytes
}

// committed is what is taken or will be by the loads that were let go on, foreign and driver included.
func (d *device) committed() memory.Bytes {
	sum := d.driver + d.foreign + d.used
	for _, l := range d.loads {
		sum += l.toCome()
	}
	return sum
}
