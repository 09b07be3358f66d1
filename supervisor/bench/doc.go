// Package bench measures what supervision costs on this machine: calls, arrays, starts, memory and idleness, on a
// private supervisor with workers that do next to nothing.
//
// It owns what is measured and how; the stage it works on is package demo's. The measuring hosts are Python programs
// (host_script.py) with the client that ComfyUI has, so the figures are what a node's caller sees.
//
// It may import supervisor/demo and knows nothing of terminals: the result is a value. It judges nothing: there are no
// limits here. It promises that, however it ends, nothing of what it started is left.
package bench
