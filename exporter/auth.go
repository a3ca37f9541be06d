package exporter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// AuthConfig configures Auth.
type AuthConfig struct {
	// TokenReviews finds out whose token a request carries; required.
	TokenReviews authentication.TokenReviewInterface
	// SubjectAccessReviews finds out what they may do; required.
	SubjectAccessReviews authorization.SubjectAccessReviewInterface
	// Audiences that tokens must be for one of; the API server's own if empty.
	Audiences []string
	// AllowedFor and DeniedFor are how long decisions are remembered, 1 min
	// and 10 s: a right or token withdrawn works that much longer.
	AllowedFor, DeniedFor time.Duration
	// Logger says who was refused. Nothing is logged if nil.
	Logger *slog.Logger
}

// Auth lets those requests pass whose bearer token belongs to somebody with
// the right to the request's verb on its path (nonResourceURLs in RBAC). It
// answers 401 without a valid token, 403 without the right, and 500 when the
// API server cannot be asked.
type Auth struct {
	c         AuthConfig
	decisions *cache.LRUExpireCache
	reviews   chan struct{}
}

// decision about a token, verb and path.
type decision struct {
	status int
	user   string
	reason string
}

// NewAuth checks the configuration.
func NewAuth(c AuthConfig) (*Auth, error) {
	c.AllowedFor = cmp.Or(c.AllowedFor, time.Minute)
	c.DeniedFor = cmp.Or(c.DeniedFor, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.TokenReviews == nil || c.SubjectAccessReviews == nil:
		return nil, errors.New("metrics authorisation: clients of TokenReview and SubjectAccessReview are required")
	case c.AllowedFor < 0 || c.DeniedFor < 0:
		return nil, fmt.Errorf("metrics authorisation: cache times %v and %v must be positive", c.AllowedFor, c.DeniedFor)
	}
	return &Auth{
		c: c,
		// Bounds memory and API calls under a flood of made-up tokens.
		decisions: cache.NewLRUExpireCache(1024),
		reviews:   make(chan struct{}, 8),
	}, nil
}

// reviewTimeout bounds both reviews of a request.
const reviewTimeout = 5 * time.Second

// Wrap returns a handler that asks before next serves.
func (a *Auth) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := a.decide(r)
		switch {
		case err != nil:
			a.c.Logger.ErrorContext(r.Context(), "A scraper cannot be authorised", "err", err)
			http.Error(w, "The API server could not be asked for authorisation.", http.StatusInternalServerError)
		case d.status == http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "A valid bearer token is required.", d.status)
		case d.status != http.StatusOK:
			http.Error(w, fmt.Sprintf("%q may not %s %s.", d.user, strings.ToLower(r.Method), r.URL.Path), d.status)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (a *Auth) decide(r *http.Request) (decision, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return decision{status: http.StatusUnauthorized}, nil
	}
	verb, path := strings.ToLower(r.Method), r.URL.Path
	// Tokens themselves are not kept in memory.
	key := sha256.Sum256([]byte(verb + "\x00" + path + "\x00" + token))
	if d, ok := a.decisions.Get(key); ok {
		return d.(decision), nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	select {
	case a.reviews <- struct{}{}:
		defer func() { <-a.reviews }()
	case <-ctx.Done():
		return decision{}, fmt.Errorf("waiting for other reviews: %w", ctx.Err())
	}
	d, err := a.review(ctx, token, verb, path)
	if err != nil {
		// Not remembered: the next scrape asks again.
		return decision{}, err
	}
	ttl := a.c.AllowedFor
	if d.status != http.StatusOK {
		ttl = a.c.DeniedFor
		a.c.Logger.InfoContext(ctx, "A scraper was refused", "status", d.status, "user", d.user, "verb", verb, "path", path, "reason", d.reason)
	}
	a.decisions.Add(key, d, ttl)
	return d, nil
}

func (a *Auth) review(ctx context.Context, token, verb, path string) (decision, error) {
	who, err := a.c.TokenReviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: a.c.Audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("creating a TokenReview: %w", err)
	}
	if !who.Status.Authenticated {
		return decision{status: http.StatusUnauthorized, reason: who.Status.Error}, nil
	}
	ours := func(audience string) bool { return slices.Contains(a.c.Audiences, audience) }
	if len(a.c.Audiences) > 0 && !slices.ContainsFunc(who.Status.Audiences, ours) {
		// An API server that does not know audiences would let any token pass.
		return decision{status: http.StatusUnauthorized, reason: "the token is for another audience"}, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	may, err := a.c.SubjectAccessReviews.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("creating a SubjectAccessReview for %s: %w", user.Username, err)
	}
	if !may.Status.Allowed {
		return decision{status: http.StatusForbidden, user: user.Username, reason: may.Status.Reason}, nil
	}
	return decision{status: http.StatusOK, user: user.Username}, nil
}
