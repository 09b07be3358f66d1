package memory

import "time"

// Reuse remembers when something was used and guesses when it will be used again, for whoever runs no prompts.
type Reuse struct {
	Last     time.Time     `json:"last"`
	Interval time.Duration `json:"interval"` // between uses, smoothed; 0 until the second use
}

// forgotten is how many intervals may pass without a use before the rhythm is taken to have stopped.
const forgotten = 3

// Used notes a use. A use after the rhythm had stopped starts it anew.
func (r *Reuse) Used(now time.Time) {
	gap := elapsed(r.Last, now)
	switch {
	case r.Last.IsZero() || gap <= 0:
	case r.Interval == 0 || gap > forgotten*r.Interval:
		r.Interval = gap
	default:
		r.Interval += (gap - r.Interval) / 2
	}
	if now.After(r.Last) {
		r.Last = now
	}
}

// Next guesses the next use: an interval after the last, and once the rhythm has stopped, or before there is one, as
// far ahead as the last use lies back.
func (r *Reuse) Next(now time.Time) time.Time {
	idle := elapsed(r.Last, now)
	if r.Interval > 0 && idle <= forgotten*r.Interval/2 {
		if next := r.Last.Add(r.Interval); next.After(now) {
			return next
		}
		return now // overdue: any moment
	}
	return now.Add(idle)
}
