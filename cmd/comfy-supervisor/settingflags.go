package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
)

// daemonSettings are the settings that a daemon takes as flags.
var daemonSettings = []string{"state-dir", "cache-dir", "environment-root", "socket", "log-level", "start", "call-silence",
	"stop-grace", "idle-release", "reap", "memory-file-quota"}

// addSettingFlags gives a command that may start a daemon the flags of its settings.
func addSettingFlags(command *cobra.Command) { addFlagsOf(command, daemonSettings) }

// addSocketFlags gives a command that starts none the flags that say where one listens.
func addSocketFlags(command *cobra.Command) { addFlagsOf(command, []string{"state-dir", "socket"}) }

func addFlagsOf(command *cobra.Command, names []string) {
	for _, name := range names {
		for i := range settings.Table {
			if setting := &settings.Table[i]; setting.Flag == name {
				text := setting.Doc
				if setting.Default != "" {
					text += " (default: " + setting.Default + ")"
				}
				command.Flags().String(name, "", text)
			}
		}
	}
}

// givenSettings returns the settings among the flags that were given.
func givenSettings(command *cobra.Command) map[string]string {
	given := make(map[string]string)
	for _, name := range daemonSettings {
		if flag := command.Flags().Lookup(name); flag != nil && flag.Changed {
			given[name] = flag.Value.String()
		}
	}
	return given
}

// settingArguments returns the flags that were given, for a daemon that this command starts.
func settingArguments(command *cobra.Command) []string {
	var arguments []string
	command.Flags().Visit(func(flag *pflag.Flag) {
		for _, name := range append([]string{"runtime-dir", "settings"}, daemonSettings...) {
			if flag.Name == name {
				arguments = append(arguments, "--"+name+"="+flag.Value.String())
			}
		}
	})
	return arguments
}
