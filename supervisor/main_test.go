//go:build unix

package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

// TestMain also plays the parts of the launcher, which supervisors start from their own program, and of supervisors and
// clients that tests kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker":
			spawn.ServeLauncher()
			os.Exit(0)
		case "test-serve":
			os.Exit(serveForTest(os.Args[2]))
		case "test-client":
			os.Exit(clientForTest(os.Args[2], os.Args[3:]))
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, cleanUp := range cleanUps {
			cleanUp()
		}
		os.Exit(code)
	}))
}

// cleanUps run when all tests of this process have ended.
var cleanUps []func()

// serveForTest runs a daemon whose configuration is JSON, and prints "ready" on standard output.
func serveForTest(configuration string) int {
	var options testOptions
	if err := json.Unmarshal([]byte(configuration), &options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	release, err := spawn.BecomeSubreaper()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer release()
	config := options.config()
	output := NewLogWriter(os.Stderr)
	defer output.Close(time.Second)
	config.Log = zerolog.New(output).With().Timestamp().Logger()
	config.Ready = func() { fmt.Println("ready") }
	daemon, err := New(config)
	if err == nil {
		err = daemon.Run(ctx)
	}
	if err != nil {
		fmt.Println("error " + err.Error())
		return 1
	}
	return 0
}

// waitLong bounds every wait of a test for something that must happen. It is never reached when all is well.
const waitLong = 60 * time.Second
