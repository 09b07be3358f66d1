// Package settings gathers the settings of one machine's operator: from flags, then the COMFY_SUPERVISOR_*
// and the existing COMFY_ENV_* variables, then the file comfy-supervisor.toml, then defaults.
//
// It owns the table of all settings (name, variables, flag, type, default, meaning), the reading of the file,
// and where folders lie on each operating system. The limits of one environment come from the file's section
// for it, then from its manifest, then from the general settings.
//
// It may import manifest and the standard library. It reads one file and the environment it is given, never
// the process's own, and changes nothing.
//
// It promises that every value carries the source it came from, and that a misspelt or impossible setting is
// an error with its place, never silently the default.
package settings
