// Package response observes one HTTP response without changing what the
// http.ResponseWriter can do.
//
// A Recorder notes the status that went out, the bytes of the body and whether
// the connection was hijacked. Recorder.Wrap hands out a writer that implements
// exactly those of the nine optional interfaces the original implements, none
// more and none fewer: net/http, httputil.ReverseProxy, websocket libraries and
// io.Copy all change their behaviour on those interfaces (sendfile needs
// io.ReaderFrom, a proxy flushes through http.Flusher), so both a missing and
// an invented one are bugs.
//
// The 512 wrapper types are generated (see gen). Each is a struct around one
// pointer, so converting it to an interface allocates nothing.
//
// It imports the standard library only.
package response

//go:generate go run ./gen
