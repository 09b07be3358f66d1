package spawn

import (
	"context"
	"time"
)

// killLimit is how long a tree may take to end after SIGKILL. What is left then is in uninterruptible sleep.
const killLimit = 5 * time.Second

// Tree is the processes of one worker. It finds them anew for each question; nothing in it goes stale but a PID, and
// those are checked.
type Tree struct {
	// Worker is the ID that the processes carry in their environment.
	Worker string
	// Python is the first of them; zero when it is not known.
	Python Process
	// Launcher is the process below which all of them live while it does. It is not one of them. Zero when it is gone.
	Launcher Process
	// Cgroup is the path of the control group that holds the tree, empty when there is none.
	Cgroup string
}

// TreeStatistics is what a tree uses.
type TreeStatistics struct {
	Processes int
	RSSBytes  int64 // the sum of resident sets
}

// Processes lists the tree, the root included. Zombies do not count.
func (t *Tree) Processes() ([]Process, error) { return t.processes() }

// Statistics counts the tree.
func (t *Tree) Statistics() (TreeStatistics, error) { return t.statistics() }

// Terminate asks every process of the tree to end (SIGTERM). On Windows, which has no such thing, it does nothing.
func (t *Tree) Terminate() error { return t.terminate() }

// Kill ends every process of the tree and looks again until it finds none. It returns those that were left when the
// context ended: they do not react to SIGKILL.
func (t *Tree) Kill(ctx context.Context) ([]Process, error) { return t.kill(ctx) }
