// Command comfy-supervisor builds the environments of ComfyUI's isolated node packs, runs their workers and owns them.
//
// Every command is one file named after it: it reads flags, calls one function of another package and prints what that
// returned. Decisions live in the packages; this one owns words, tables, exit codes and nothing else. It may import
// every package of the module and is imported by none.
//
// Exit codes: 0 done, 1 it failed, 2 the command line (or, for check and build, a manifest) is wrong.
package main
