package books

import (
	"net/http"
	"strconv"
)

// Detail is the answer of details.
type Detail struct {
	ID        int64  `json:"id"`
	Author    string `json:"author"`
	Title     string `json:"title"`
	Year      int    `json:"year"`
	Type      string `json:"type"`
	Pages     int    `json:"pages"`
	Publisher string `json:"publisher"`
	Language  string `json:"language"`
}

// catalogue is every product there is.
var catalogue = map[int64]Detail{
	0: {0, "William Shakespeare", "The Comedy of Errors", 1595, "paperback", 200, "First Folio Press", "English"},
	1: {1, "Mary Shelley", "Frankenstein", 1818, "hardcover", 280, "Lackington", "English"},
}

// Details serves GET /details/{id}.
func Details() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /details/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := productID(w, r)
		if !ok {
			return
		}
		writeJSON(w, http.StatusOK, catalogue[id])
	})
	return mux
}

// productID reads the path's id and answers 400 or 404 itself when it is no
// product's.
func productID(w http.ResponseWriter, r *http.Request) (int64, bool) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		writeError(w, http.StatusBadRequest, "product id must be a number")
		return 0, false
	}
	if _, ok := catalogue[id]; !ok {
		writeError(w, http.StatusNotFound, "no such product")
		return 0, false
	}
	return id, true
}
