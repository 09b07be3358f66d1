//go:build linux

// Command stress holds the whole product against its promises: hosts call nodes whose answers are known while
// processes are killed and suspended, files are full and frames are rubbish. After each round nothing may be left over,
// no answer wrong, no call without an answer or a clear error, and everything working again in its time.
//
//	go run ./testdata/stress -rounds 1000 -seed 1 -state /tmp/stress.json
//	go run ./testdata/stress -floods
//
// The rounds follow from the seed. A state file holds the number of the next round and the counts so far: the same
// command goes on where it was interrupted. The program also plays the parts of the supervisor and of its launchers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

func main() {
	if code, done := play(os.Args); done {
		os.Exit(code)
	}
	var options options
	flag.IntVar(&options.rounds, "rounds", 20, "rounds in all")
	flag.Uint64Var(&options.seed, "seed", 1, "what the rounds follow from")
	flag.StringVar(&options.state, "state", "", "file of the state, to go on after an interruption")
	flag.StringVar(&options.only, "only", "", "faults to choose from, separated by commas; empty: all")
	flag.StringVar(&options.python, "python", "python3", "interpreter of hosts and workers")
	flag.BoolVar(&options.keep, "keep", false, "keep the folder with its logs")
	flag.BoolVar(&options.goOn, "go-on", false, "go on after a broken promise, with new processes")
	flood := flag.Bool("floods", false, "instead of rounds, print what floods of output do to memory and to other workers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options.say = func(format string, arguments ...any) { fmt.Printf(format+"\n", arguments...) }
	if *flood {
		if err := floods(ctx, options); err != nil {
			fmt.Fprintln(os.Stderr, "stress:", err)
			os.Exit(1)
		}
		return
	}
	report, err := run(ctx, options)
	fmt.Println(report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

// play plays the part of the supervisor or of a launcher when the arguments say so.
func play(arguments []string) (code int, done bool) {
	if len(arguments) < 2 {
		return 0, false
	}
	switch arguments[1] {
	case "worker":
		spawn.ServeLauncher()
		return 0, true
	case "serve":
		if err := serve(strings.Join(arguments[2:], " ")); err != nil {
			fmt.Fprintln(os.Stderr, "stress: the supervisor:", err)
			return 1, true
		}
		return 0, true
	}
	return 0, false
}
