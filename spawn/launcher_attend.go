package spawn

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// Times of a stop. An orphan has three seconds after its wait: one to end politely, one for SIGTERM, one to be killed.
const (
	terminateGrace = 2 * time.Second // between SIGTERM and SIGKILL
	orphanGrace    = time.Second
	hangUpGrace    = 5 * time.Second // between the end of Python's connection and the end of Python
	drainLimit     = time.Second     // for what is left in pipes that a process beyond reach holds open
)

// attend waits for the first reason to end the worker, ends all of it, and tells.
func (l *launcher) attend(host *Watch, outputDone <-chan struct{}) {
	outOfMemoryBefore := outOfMemoryKills()
	if host != nil {
		l.group.Go(func() { l.attendHost(host) })
	}
	reason := ""
	select {
	case <-l.child.watch.Done():
	case <-l.killed:
		reason = l.killWhy
	case order := <-l.stops:
		reason = order.reason
		l.endPolitely(order.grace, min(order.grace, terminateGrace))
	case <-l.orphan.fired:
		reason = "no supervisor came back to its launcher"
		l.phases.report(PhaseOrphan, "")
		l.endPolitely(orphanGrace, orphanGrace)
	case <-l.hungUp:
		reason = l.hungUpReason()
	}
	l.markStopping()
	l.end(reason, outOfMemoryBefore, outputDone)
}

// hungUpReason waits for a Python that has closed its connection and may be about to end by itself.
func (l *launcher) hungUpReason() string {
	if l.hangWhy != nil {
		return fmt.Sprintf("what it sent is no frame: %v", l.hangWhy)
	}
	if l.waitForPython(hangUpGrace) {
		return ""
	}
	return "it closed its connection and did not end"
}

// attendHost kills the worker when its host dies.
func (l *launcher) attendHost(host *Watch) {
	defer host.Close()
	select {
	case <-host.Done():
		l.phases.report(PhaseHostDied, host.Process().String())
		l.log.Info().Stringer("host", host.Process()).Msg("the host died: killing the worker")
		l.kill("its host died")
	case <-l.ended:
	}
}

func (l *launcher) markStopping() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
}

// endPolitely asks Python to end, first over its connection, then with a signal.
func (l *launcher) endPolitely(grace, terminate time.Duration) {
	l.markStopping()
	l.phases.report(PhaseShutdown, "")
	if l.lends {
		l.child.lent.shutdown()
	} else {
		l.down.shutdown(l.child.frames)
	}
	if l.waitForPython(grace) {
		return
	}
	l.phases.report(PhaseTerminate, fmt.Sprintf("no end within %v", grace))
	if err := l.tree.Terminate(); err != nil {
		l.log.Warn().Err(err).Msg("asking the worker to end")
	}
	l.waitForPython(terminate)
}

// waitForPython waits for Python's end. It is false when the time is over or nothing may be waited for any more.
func (l *launcher) waitForPython(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-l.child.watch.Done():
		return true
	case <-l.killed:
	case <-timer.C:
	}
	return false
}

// end kills what is left of the tree, takes Python's status and says that the worker is over.
func (l *launcher) end(reason string, outOfMemoryBefore int64, outputDone <-chan struct{}) {
	select {
	case <-l.child.watch.Done():
	default:
		l.phases.report(PhaseKill, "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), killLimit)
	defer cancel()
	unkillable, err := l.tree.Kill(ctx)
	if err != nil {
		l.log.Error().Err(err).Msg("killing the worker's processes")
	}
	exit := &launcherpb.Exit{Reason: reason}
	for _, process := range unkillable {
		exit.Unkillable = append(exit.Unkillable, identityOut(process))
	}
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-outputDone: // every writer is gone, and everything was read
	case <-limit.C:
	}
	l.child.closePipes()
	select {
	case <-l.child.watch.Done():
		describeEnd(exit, l.child.reap())
	case <-time.After(drainLimit):
		exit.Reason = joinReasons(exit.Reason, "Python does not react to SIGKILL")
	}
	if exit.Signal == "SIGKILL" && reason == "" {
		exit.Reason = "killed by another process"
		if outOfMemoryKills() > outOfMemoryBefore {
			exit.Reason = "killed by the kernel for lack of memory, as far as its counters tell"
		}
	}
	l.reapAdopted()
	if err := removeCgroup(l.tree.Cgroup); err != nil {
		l.log.Warn().Err(err).Msg("the control group stays")
	}
	exit.Stderr = l.output.lastStderr()
	exit.TimeNs = time.Now().UnixNano()
	l.finish(exit)
}

func joinReasons(first, second string) string {
	if first == "" {
		return second
	}
	return first + "; " + second
}

func describeEnd(exit *launcherpb.Exit, state *os.ProcessState) {
	if state == nil {
		return
	}
	if exit.Signal = signalName(state); exit.Signal == "" {
		exit.HasCode = true
		exit.Code = int32(state.ExitCode())
	}
}

// finish makes the end known. It is called once.
func (l *launcher) finish(exit *launcherpb.Exit) {
	l.mu.Lock()
	l.stopping = true
	l.exit = exit
	l.mu.Unlock()
	l.phases.report(PhaseEmpty, "")
	l.log.Info().Str("signal", exit.GetSignal()).Int32("code", exit.GetCode()).Str("reason", exit.GetReason()).
		Int("unkillable", len(exit.GetUnkillable())).Msg("the worker is over")
	close(l.ended)
}

// attendOrphan ends this process when no supervisor comes back, or when it is asked to by SIGTERM and there is none.
func (l *launcher) attendOrphan(terminate <-chan os.Signal) {
	informed := false // a supervisor learns of the end and takes its leave; it is waited for
	select {
	case <-l.orphan.fired:
	case <-terminate:
		informed = l.orphan.attached()
		select {
		case l.stops <- stopOrder{grace: orphanGrace, reason: "its launcher was asked to end by SIGTERM"}:
		default:
		}
	}
	l.mu.Lock()
	running := l.starting
	l.mu.Unlock()
	if running {
		<-l.ended
	}
	if informed {
		<-l.orphan.fired
	}
	l.mu.Lock()
	l.selfEnd = true
	server := l.server
	l.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}
