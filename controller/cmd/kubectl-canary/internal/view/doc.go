// Package view draws a Canary as text: for a terminal, for a log, in a table. It is pure;
// what it draws depends on the Canary, the time and [Options] alone, no line of it is
// longer than the width it was given, and text of others that would move the cursor or
// change colours is made harmless.
//
// It imports the API types and controller/rollout, for batch targets that have not begun.
package view
