package books

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/ratingspb"
)

// ReviewsAnswer is the answer of reviews.
type ReviewsAnswer struct {
	ID      string   `json:"id"`
	Version string   `json:"version"`
	Reviews []Review `json:"reviews"`
}

// Review is one opinion; without a rating in version v1.
type Review struct {
	Reviewer string  `json:"reviewer"`
	Text     string  `json:"text"`
	Rating   *Rating `json:"rating,omitempty"`
}

// Rating is either stars in a color or the reason there are none.
type Rating struct {
	Stars int32  `json:"stars,omitempty"`
	Color string `json:"color,omitempty"`
	Error string `json:"error,omitempty"`
}

// colors of the stars by version; a version without one shows none and does
// not call ratings.
var colors = map[string]string{"v1": "", "v2": "black", "v3": "red", "v4": "gold"}

// ratingsTimeout bounds the call to ratings, so that slow stars do not make
// slow reviews.
const ratingsTimeout = 2 * time.Second

// Reviews is the service; Client is unused in version v1.
type Reviews struct {
	Version string
	Client  ratingspb.RatingsClient
	Log     *slog.Logger
}

// NeedsRatings reports whether a version calls ratings; an unknown version is
// an error.
func NeedsRatings(version string) (bool, error) {
	color, ok := colors[version]
	if !ok {
		return false, fmt.Errorf("VERSION %q: reviews has v1 to v4", version)
	}
	return color != "", nil
}

// Mux serves GET /reviews/{id}.
func (s Reviews) Mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reviews/{id}", s.get)
	return mux
}

func (s Reviews) get(w http.ResponseWriter, r *http.Request) {
	id, ok := productID(w, r)
	if !ok {
		return
	}
	out := ReviewsAnswer{ID: strconv.FormatInt(id, 10), Version: s.Version, Reviews: []Review{
		{Reviewer: "Ada", Text: "Kept me up past midnight, and I regret nothing."},
		{Reviewer: "Grace", Text: "Clear, short, and better the second time."},
	}}
	if color := colors[s.Version]; color != "" {
		s.rate(r, id, color, out.Reviews)
	}
	writeJSON(w, http.StatusOK, out)
}

// rate adds the stars, or to every review the reason there are none.
func (s Reviews) rate(r *http.Request, id int64, color string, reviews []Review) {
	ctx, cancel := context.WithTimeout(r.Context(), ratingsTimeout)
	defer cancel()
	answer, err := s.Client.GetRatings(ctx, &ratingspb.GetRatingsRequest{ProductId: id})
	if err != nil {
		s.Log.WarnContext(ctx, "asking ratings failed", "product", id, "err", err)
	}
	for i := range reviews {
		switch n, ok := answer.GetStars()[reviews[i].Reviewer]; {
		case err != nil:
			reviews[i].Rating = &Rating{Error: "ratings are currently unavailable"}
		case ok:
			reviews[i].Rating = &Rating{Stars: n, Color: color}
		}
	}
}
