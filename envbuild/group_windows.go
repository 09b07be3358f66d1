package envbuild

import (
	"os/exec"
	"time"
)

// ownGroup: the children of pip end with it, since it alone holds their pipes.
func ownGroup(command *exec.Cmd) { command.WaitDelay = time.Second }
