// Package command is the command line of kubectl-canary: flags, connections, output, exit
// codes. What to show, to change and to wait for is decided by its sisters view, change,
// goal, lint and compose.
package command
