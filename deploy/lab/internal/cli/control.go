package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
)

// control is the lab's own small API, for the commands that act on a running
// lab. Whoever can read the state file has its token.
type control struct {
	url, token string
	// down is closed when somebody asked the lab to stop.
	down     chan struct{}
	downOnce sync.Once
	server   *http.Server
	wg       sync.WaitGroup
}

func serveControl(c *cluster.Cluster, log *slog.Logger) (*control, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(c.Address(), strconv.Itoa(c.ControlPort())))
	if err != nil {
		return nil, fmt.Errorf("serving the control API: %w", err)
	}
	k := &control{url: "http://" + listener.Addr().String(), token: rand.Text(), down: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /down", func(http.ResponseWriter, *http.Request) { k.downOnce.Do(func() { close(k.down) }) })
	mux.HandleFunc("POST /restart/{component}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("component")
		log.Info("restarting", "component", name)
		if err := c.Restart(r.Context(), name, r.URL.Query().Get("kill") == "true"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	k.server = &http.Server{Handler: k.authorize(mux), ReadHeaderTimeout: 10 * time.Second}
	k.wg.Go(func() {
		if err := k.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serving the control API", "error", err)
		}
	})
	return k, nil
}

func (k *control) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(token), []byte(k.token)) != 1 {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (k *control) stop() {
	_ = k.server.Close()
	k.wg.Wait()
}

// callControl posts to the control API of the lab whose state is given.
func callControl(ctx context.Context, state cluster.State, path string) error {
	if state.Control == "" {
		return errors.New("the lab is not ready")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, state.Control+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+state.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(body)))
	}
	return nil
}
