// Package terminal connects a user's terminal to the terminal of a jailed
// process: raw mode and its undoing, an input reader that can be stopped, and a
// filter over the output.
//
// It promises
//
//   - that the user's terminal is put back by [TTY.Close], whatever happened in
//     between, as long as this process lives to run it: line discipline, and
//     every mode ([Filter.Undo]) that the output switched on and not off again;
//   - that nothing is sent to a terminal that did not need it: a program that
//     only printed text ends without a single escape sequence of ours;
//   - that the open file description of the user's terminal, which the shell and
//     others share, is never made non-blocking;
//   - that with [Filter.DenyClipboard] no OSC 52 reaches the terminal, nor any
//     escape sequence inside a device control string, the way through tmux and
//     screen. Other strings pass.
//
// Limits: the filter follows control sequences, it is no terminal emulator; the
// 8-bit C1 controls count in their UTF-8 form only, because a terminal in UTF-8
// mode reads no other. SIGKILL of this process leaves the terminal as it is.
//
// Why not a fixed reset sequence at the end: leaving the alternate screen or
// popping the keyboard protocol without having entered it moves the cursor of a
// shell, or takes away what another program set.
package terminal
