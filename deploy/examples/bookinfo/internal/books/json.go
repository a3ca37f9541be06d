package books

import (
	"encoding/json"
	"net/http"
)

// problem is the body of every error.
type problem struct {
	Error string `json:"error"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The types are our own, so what fails here is the client's connection.
	_ = json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, problem{message})
}
