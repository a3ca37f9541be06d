package reconcile

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// emptyCluster is a client of an API server that has no object and keeps none that is
// created. What the tests are about would be hard to bring about on a real one.
func emptyCluster(t *testing.T) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet:
			_, _ = io.Copy(w, r.Body)
		case r.URL.Query().Get("watch") == "":
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
			}})
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return client
}
