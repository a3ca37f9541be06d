package books

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// upstreamTimeout bounds one question to details or reviews.
	upstreamTimeout = 3 * time.Second
	// maxAnswer is far above any answer of the application.
	maxAnswer = 1 << 20
)

// ProductPage puts the page together.
type ProductPage struct {
	Details *http.Client // of the cluster details
	Reviews *http.Client
	Log     *slog.Logger
}

// Mux serves the page and the API of Istio's productpage.
func (s ProductPage) Mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /productpage", s.page)
	mux.HandleFunc("GET /api/v1/products", func(w http.ResponseWriter, _ *http.Request) {
		all := make([]Detail, 0, len(catalogue))
		for _, d := range catalogue {
			all = append(all, d)
		}
		slices.SortFunc(all, func(a, b Detail) int { return int(a.ID - b.ID) })
		writeJSON(w, http.StatusOK, all)
	})
	mux.HandleFunc("GET /api/v1/products/{id}", s.proxy(s.Details, "details"))
	mux.HandleFunc("GET /api/v1/products/{id}/reviews", s.proxy(s.Reviews, "reviews"))
	return mux
}

// statusError is an upstream's answer other than 200.
type statusError struct {
	service string
	status  int
}

func (e statusError) Error() string { return fmt.Sprintf("%s answered %d", e.service, e.status) }

// ask gets one JSON answer.
func ask(ctx context.Context, client *http.Client, service string, id int64, into any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+service+"/"+service+"/"+strconv.FormatInt(id, 10), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking %s: %w", service, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", service, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	// Read to the end, so that the connection can serve again.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", service, err)
	}
	if resp.StatusCode != http.StatusOK {
		return statusError{service, resp.StatusCode}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", service, err)
	}
	return nil
}

// proxy passes one upstream's answer on, and its failure as 502 or 504.
func (s ProductPage) proxy(client *http.Client, service string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, ok := productID(w, r)
		if !ok {
			return
		}
		var answer json.RawMessage
		if err := ask(r.Context(), client, service, id, &answer); err != nil {
			s.fail(w, r, service, err)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

func (s ProductPage) fail(w http.ResponseWriter, r *http.Request, service string, err error) {
	s.Log.WarnContext(r.Context(), "an upstream failed", "upstream", service, "err", err)
	status := http.StatusBadGateway
	if errors.Is(err, context.DeadlineExceeded) {
		status = http.StatusGatewayTimeout
	}
	writeError(w, status, service+" is currently unavailable")
}

// page asks both upstreams at once. A part that is missing is said on the page,
// whose status is then 502, so that a broken upstream is counted all the way
// up.
func (s ProductPage) page(w http.ResponseWriter, r *http.Request) {
	var (
		view                  pageView
		detailsErr, reviewErr error
		asked                 sync.WaitGroup
		ctx                   = r.Context()
	)
	asked.Go(func() { detailsErr = ask(ctx, s.Details, "details", 0, &view.Detail) })
	asked.Go(func() { reviewErr = ask(ctx, s.Reviews, "reviews", 0, &view.Reviews) })
	asked.Wait()

	status := http.StatusOK
	for service, err := range map[string]error{"details": detailsErr, "reviews": reviewErr} {
		if err != nil {
			s.Log.WarnContext(ctx, "an upstream failed", "upstream", service, "err", err)
			view.Missing = append(view.Missing, service)
			status = http.StatusBadGateway
		}
	}
	slices.Sort(view.Missing)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := pageTemplate.Execute(w, view); err != nil {
		s.Log.DebugContext(ctx, "writing the page failed", "err", err)
	}
}

type pageView struct {
	Detail  Detail
	Reviews ReviewsAnswer
	Missing []string
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Bookinfo</title>
<h1>{{or .Detail.Title "Bookinfo"}}</h1>
{{range .Missing}}<p class="error">{{.}} is currently unavailable</p>
{{end}}{{with .Detail}}{{if .Author}}<p>{{.Author}}, {{.Year}}, {{.Pages}} pages, {{.Publisher}}</p>{{end}}{{end}}
{{with .Reviews}}{{if .Reviews}}<h2>Reviews ({{.Version}})</h2>
{{range .Reviews}}<blockquote><p>{{.Text}}</p><footer>{{.Reviewer}}{{with .Rating}}:
{{if .Error}}{{.Error}}{{else}}<span style="color:{{.Color}}">{{.Stars}} of 5 stars</span>{{end}}{{end}}</footer></blockquote>
{{end}}{{end}}{{end}}</html>
`))
