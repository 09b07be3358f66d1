package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestEveryCommandShowsAnExampleAndEveryFlagOneWordForItsValue(t *testing.T) {
	for _, command := range newRootCommand(&application{}).Commands() {
		if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		if !strings.Contains(command.Example, "comfy-supervisor "+command.Name()) {
			t.Errorf("%s has no example", command.Name())
		}
		everyFlagReads(t, command)
	}
}

func everyFlagReads(t *testing.T, command *cobra.Command) {
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if value, usage := pflag.UnquoteUsage(flag); strings.Contains(value, " ") || usage == "" {
			t.Errorf("%s --%s takes a %q: %q", command.Name(), flag.Name, value, usage)
		}
	})
}
