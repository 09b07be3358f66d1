// Package budget keeps one machine's memory accounts: what every process of the supervisor holds on the cards and pins in
// RAM, who waits for room, and what was asked back from whom. The rules are memory's; here they meet the world.
//
// A Keeper owns the books in one goroutine. Whatever happens to a process is posted to it and never waited for, so it can
// be told from anywhere; it reads the cards and the RAM in a second goroutine, sends requests through the Line of each
// party, and makes an event of every decision. It starts and ends no process itself: what that takes is in Config.
//
// It may import memory, memory/probe and supervisor/api. It knows nothing of sessions and records beyond their names.
package budget
