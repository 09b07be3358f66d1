// Package manifest understands the two files by which a node pack describes itself: comfy-env.toml, which
// describes one environment and whose presence in a pack's nodes folder is the switch for isolation, and
// comfy-env-root.toml, which describes the pack.
//
// It owns their format: parsing with positions, every diagnostic (what is wrong, where, why it matters,
// what to write instead), the fixes that have exactly one right answer, the JSON schema, the finding of
// manifests in packs and ComfyUI folders, and the names of environments.
//
// It may import the standard library, the TOML parser and what replaces files, nothing else of this module. It starts no
// process, opens no connection, and writes a file only where that is what is asked: Rewrite, WriteStarter.
//
// It promises that nothing panics or hangs on any input, that a parse never stops at its first complaint,
// and that every diagnostic has a line and a column.
package manifest
