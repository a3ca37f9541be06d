package reconcile

import (
	"encoding/json"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ledger remembers, for each Deployment, what this process last wrote and which version
// came of it. The API server raises metadata.generation at every change of a spec, so a
// Deployment at the generation of the last apply needs no other. A new process knows
// nothing and applies once, which changes nothing where nothing differs.
//
// It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]ledgerEntry
}

type ledgerEntry struct {
	uid             types.UID
	generation      int64
	resourceVersion string
	// config is the hash of the apply document; empty when only the version is known.
	config string
	// metadata is what config says of labels and annotations, which have no generation.
	metadata metav1.ObjectMeta
	// deleted says that this process asked for the deletion of uid.
	deleted bool
}

// matches says whether live is still what the last apply of config made of it.
func (e ledgerEntry) matches(live *appsv1.Deployment, config []byte) bool {
	return e.uid == live.UID && e.generation == live.Generation && e.config == hashOf(config) &&
		contains(live.Labels, e.metadata.Labels) && contains(live.Annotations, e.metadata.Annotations)
}

func contains(all, part map[string]string) bool {
	for key, value := range part {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (l *ledger) get(namespace, name string) (ledgerEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, ok := l.entries[types.NamespacedName{Namespace: namespace, Name: name}]
	return entry, ok && entry.config != ""
}

// put records an apply and its result.
func (l *ledger) put(applied *appsv1.Deployment, config []byte) {
	var partial metav1.PartialObjectMetadata
	// The document was rendered by this package; unreadable, it would only be applied again.
	_ = json.Unmarshal(config, &partial)
	l.set(applied, ledgerEntry{config: hashOf(config), metadata: partial.ObjectMeta})
}

// seen records another write of a Deployment, after which an apply must look again.
func (l *ledger) seen(d *appsv1.Deployment) { l.set(d, ledgerEntry{}) }

// deleted records that a Deployment was asked to go.
func (l *ledger) deleted(d *appsv1.Deployment) { l.set(d, ledgerEntry{deleted: true}) }

func (l *ledger) set(d *appsv1.Deployment, entry ledgerEntry) {
	entry.uid, entry.generation, entry.resourceVersion = d.UID, d.Generation, d.ResourceVersion
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[keyOf(d)] = entry
}

// ahead says whether this process has written a later version of d than d.
func (l *ledger) ahead(d *appsv1.Deployment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, ok := l.entries[keyOf(d)]
	return ok && entry.uid == d.UID && (entry.deleted && d.DeletionTimestamp == nil || older(d.ResourceVersion, entry.resourceVersion))
}

// forget drops what is known of a Deployment that is gone.
func (l *ledger) forget(d *appsv1.Deployment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry, ok := l.entries[keyOf(d)]; ok && entry.uid == d.UID {
		delete(l.entries, keyOf(d))
	}
}
