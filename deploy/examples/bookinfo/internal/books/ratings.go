package books

import (
	"context"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/ratingspb"
)

// Ratings serves the stars.
type Ratings struct {
	ratingspb.UnimplementedRatingsServer
}

var stars = map[int64]map[string]int32{
	0: {"Ada": 5, "Grace": 4},
	1: {"Ada": 4, "Grace": 5},
}

// GetRatings implements the contract.
func (Ratings) GetRatings(_ context.Context, req *ratingspb.GetRatingsRequest) (*ratingspb.GetRatingsResponse, error) {
	byReviewer, ok := stars[req.GetProductId()]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "no ratings of product %d", req.GetProductId())
	}
	return &ratingspb.GetRatingsResponse{Stars: maps.Clone(byReviewer)}, nil
}
