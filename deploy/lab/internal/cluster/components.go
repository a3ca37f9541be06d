package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Names of the components, which are also the subcommands of the lab binary
// that run them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

const (
	serviceCIDR    = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1"
)

// layout is where everything of one lab is and listens.
type layout struct {
	dir           string
	address       string
	etcdPort      int
	etcdPeerPort  int
	apiPort       int
	managerPort   int
	schedulerPort int
	kubeletPort   int
	controlPort   int
	auditLog      string
	noFsync       bool
	verbosity     int
}

func (l *layout) pki(file string) string        { return filepath.Join(l.dir, "pki", file) }
func (l *layout) kubeconfig(user string) string { return filepath.Join(l.dir, user+".kubeconfig") }
func (l *layout) server() string                { return "https://" + l.at(l.apiPort) }
func (l *layout) at(port int) string            { return net.JoinHostPort(l.address, strconv.Itoa(port)) }
func (l *layout) logFile(component string) string {
	return filepath.Join(l.dir, "logs", component+".log")
}

func (l *layout) etcdArgs() []string {
	client, peer := "https://"+l.at(l.etcdPort), "https://"+l.at(l.etcdPeerPort)
	args := []string{
		"--name=lab",
		"--data-dir=" + filepath.Join(l.dir, "etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=lab=" + peer,
		"--cert-file=" + l.pki("etcd.crt"),
		"--key-file=" + l.pki("etcd.key"),
		"--client-cert-auth",
		"--trusted-ca-file=" + l.pki("etcd-ca.crt"),
		"--peer-cert-file=" + l.pki("etcd.crt"),
		"--peer-key-file=" + l.pki("etcd.key"),
		"--peer-client-cert-auth",
		"--peer-trusted-ca-file=" + l.pki("etcd-ca.crt"),
		"--log-level=warn",
	}
	if l.noFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func (l *layout) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=https://" + l.at(l.etcdPort),
		"--etcd-cafile=" + l.pki("etcd-ca.crt"),
		"--etcd-certfile=" + l.pki("etcd-client.crt"),
		"--etcd-keyfile=" + l.pki("etcd-client.key"),
		"--bind-address=" + l.address,
		"--advertise-address=" + l.address,
		"--secure-port=" + strconv.Itoa(l.apiPort),
		"--tls-cert-file=" + l.pki("apiserver.crt"),
		"--tls-private-key-file=" + l.pki("apiserver.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--kubelet-client-certificate=" + l.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + l.pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + l.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.pki("service-account.key"),
		"--service-account-signing-key-file=" + l.pki("service-account.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// The address of the API server is a loopback address, which may not
		// stand in an EndpointSlice.
		"--endpoint-reconciler-type=none",
		// Without it a server that is told to end waits a minute for its watches.
		"--shutdown-watch-termination-grace-period=1s",
		"--profiling=false",
		"--v=" + strconv.Itoa(l.verbosity),
	}
	if l.auditLog != "" {
		args = append(args,
			"--audit-policy-file="+filepath.Join(l.dir, "audit-policy.yaml"),
			"--audit-log-path="+l.auditLog,
			"--audit-log-mode=blocking",
		)
	}
	return args
}

func (l *layout) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig("controller-manager"),
		"--authentication-kubeconfig=" + l.kubeconfig("controller-manager"),
		"--authorization-kubeconfig=" + l.kubeconfig("controller-manager"),
		"--bind-address=" + l.address,
		"--secure-port=" + strconv.Itoa(l.managerPort),
		"--tls-cert-file=" + l.pki("components.crt"),
		"--tls-private-key-file=" + l.pki("components.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--root-ca-file=" + l.pki("ca.crt"),
		"--cluster-signing-cert-file=" + l.pki("ca.crt"),
		"--cluster-signing-key-file=" + l.pki("ca.key"),
		"--service-account-private-key-file=" + l.pki("service-account.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--concurrent-deployment-syncs=10",
		"--concurrent-replicaset-syncs=10",
		"--profiling=false",
		"--v=" + strconv.Itoa(l.verbosity),
	}
}

func (l *layout) schedulerArgs() []string {
	return []string{
		"--config=" + filepath.Join(l.dir, "scheduler.yaml"),
		"--authentication-kubeconfig=" + l.kubeconfig("scheduler"),
		"--authorization-kubeconfig=" + l.kubeconfig("scheduler"),
		"--bind-address=" + l.address,
		"--secure-port=" + strconv.Itoa(l.schedulerPort),
		"--tls-cert-file=" + l.pki("components.crt"),
		"--tls-private-key-file=" + l.pki("components.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--v=" + strconv.Itoa(l.verbosity),
	}
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
enableProfiling: false
clientConnection: {kubeconfig: %q, qps: 500, burst: 1000}
`

// write puts every file the components read into the lab's directory.
func (l *layout) write(name string) error {
	if err := writePKI(filepath.Join(l.dir, "pki"), l.address); err != nil {
		return fmt.Errorf("writing certificates: %w", err)
	}
	for _, user := range []string{"admin", "controller-manager", "scheduler", "kubelet"} {
		if err := writeKubeconfig(l.kubeconfig(user), filepath.Join(l.dir, "pki"), user, name, l.server()); err != nil {
			return err
		}
	}
	for file, text := range map[string]string{
		"audit-policy.yaml": auditPolicy,
		"scheduler.yaml":    fmt.Sprintf(schedulerConfig, l.kubeconfig("scheduler")),
	} {
		if err := os.WriteFile(filepath.Join(l.dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(l.dir, "logs"), 0o700)
}
