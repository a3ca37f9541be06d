// Command kubectl-canary shows and steers rollouts, as a kubectl plugin or by itself.
// README.md beside this file is a first session with it.
//
// Its parts are in internal: view draws, change decides what a command writes, goal says
// whether what is waited for has come, lint checks files and compose makes a Canary, all
// of them pure; command is the command line and all reading and writing.
//
// It never imports controller/reconcile: it works without the operator's code.
package main
