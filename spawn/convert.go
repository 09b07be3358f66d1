package spawn

import (
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// Between the contract's messages and this package's types; no decisions are made here.

func identityOut(process Process) *launcherpb.ProcessIdentity {
	if process.IsZero() {
		return nil
	}
	return &launcherpb.ProcessIdentity{Pid: int64(process.PID), StartTime: process.StartTime}
}

func identityIn(process *launcherpb.ProcessIdentity) Process {
	return Process{PID: int(process.GetPid()), StartTime: process.GetStartTime()}
}

func exitIn(exit *launcherpb.Exit) Exit {
	if exit == nil {
		return Exit{}
	}
	result := Exit{
		Signal: exit.GetSignal(),
		Stderr: exit.GetStderr(),
		Reason: exit.GetReason(),
		Time:   time.Unix(0, exit.GetTimeNs()),
	}
	if exit.GetHasCode() {
		code := int(exit.GetCode())
		result.Code = &code
	}
	for _, process := range exit.GetUnkillable() {
		result.Unkillable = append(result.Unkillable, identityIn(process))
	}
	return result
}

func lineOut(line Line) *launcherpb.LogLine {
	return &launcherpb.LogLine{
		TimeNs:       line.Time.UnixNano(),
		Stderr:       line.Stream == StreamStderr,
		Text:         line.Text,
		CutBytes:     line.CutBytes,
		DroppedLines: line.DroppedLines,
		DroppedBytes: line.DroppedBytes,
	}
}

func lineIn(line *launcherpb.LogLine) Line {
	stream := StreamStdout
	if line.GetStderr() {
		stream = StreamStderr
	}
	return Line{
		Time:         time.Unix(0, line.GetTimeNs()),
		Stream:       stream,
		Text:         line.GetText(),
		CutBytes:     line.GetCutBytes(),
		DroppedLines: line.GetDroppedLines(),
		DroppedBytes: line.GetDroppedBytes(),
	}
}

func phaseIn(phase *launcherpb.Phase) PhaseReport {
	return PhaseReport{Phase: phase.GetPhase(), Detail: phase.GetDetail(), Time: time.Unix(0, phase.GetTimeNs())}
}
