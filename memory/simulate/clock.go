package simulate

import (
	"container/heap"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"
)

// epoch is when every run begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// happening is something that will happen at a moment.
type happening struct {
	at    time.Duration
	order uint64
	do    func()
}

// agenda is a heap of happenings, the earliest first, and among equals the one that was planned first.
type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if a[i].at != a[j].at {
		return a[i].at < a[j].at
	}
	return a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push adds a happening, for container/heap.
func (a *agenda) Push(x any) { *a = append(*a, x.(happening)) }

// Pop takes the last one, for container/heap.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = happening{}
	*a = (*a)[:last]
	return x
}

// clock is virtual time with everything that will happen in it.
type clock struct {
	now    time.Duration
	agenda agenda
	order  uint64
	random *rand.Rand
	trace  uint64 // a hash over all that happened
	events int
}

func newClock(seed uint64) *clock {
	return &clock{random: rand.New(rand.NewPCG(seed, 0x5eed)), trace: fnvStart}
}

// time is the moment as the policy sees it.
func (c *clock) time() time.Time { return epoch.Add(c.now) }

// in plans something; a negative delay is none.
func (c *clock) in(delay time.Duration, do func()) {
	c.order++
	heap.Push(&c.agenda, happening{c.now + max(0, delay), c.order, do})
}

// run lets happen what will, until it is over, nothing is left, or the end.
func (c *clock) run(end time.Duration, over func() bool) {
	for len(c.agenda) > 0 && c.agenda[0].at <= end && !over() {
		next := heap.Pop(&c.agenda).(happening)
		c.now = next.at
		c.events++
		next.do()
	}
}

var fnvStart = fnv.New64a().Sum64()

// note adds a line to the hash of the run.
func (c *clock) note(words ...string) {
	const prime = 1099511628211
	mix := func(text string) {
		for i := range len(text) {
			c.trace = (c.trace ^ uint64(text[i])) * prime
		}
		c.trace = (c.trace ^ 0xff) * prime
	}
	mix(strconv.FormatInt(int64(c.now), 36))
	for _, word := range words {
		mix(word)
	}
}

// between draws a span evenly from a range.
func (c *clock) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(c.random.Int64N(int64(high-low)))
}

// exponential draws a waiting time with a mean.
func (c *clock) exponential(mean time.Duration) time.Duration {
	return time.Duration(c.random.ExpFloat64() * float64(mean))
}
