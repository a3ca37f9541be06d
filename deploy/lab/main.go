// Command lab runs a real Kubernetes control plane and nodes whose pods are
// processes, without containers and without root. See README.md.
package main

import (
	"os"
	_ "time/tzdata" // CronJobs with a time zone, on a machine without the database

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // the servers' JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the servers' client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the servers' version metric
	"k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	labcli "github.com/canarycontroller/canary-controller/deploy/lab/internal/cli"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
)

// The servers are chosen by the first argument before any flag is parsed:
// they have flags of their own.
func main() {
	if len(os.Args) > 1 {
		args := os.Args[2:]
		switch name := os.Args[1]; name {
		case cluster.Etcd:
			etcdmain.Main(append([]string{name}, args...))
			return
		case cluster.APIServer:
			c := apiserver.NewAPIServerCommand()
			c.SetArgs(args)
			os.Exit(cli.Run(c))
		case cluster.ControllerManager:
			c := controllermanager.NewControllerManagerCommand()
			c.SetArgs(args)
			os.Exit(cli.Run(c))
		case cluster.Scheduler:
			c := scheduler.NewSchedulerCommand()
			c.SetArgs(args)
			os.Exit(cli.Run(c))
		case labcli.Kubectl:
			kubectl(args)
			return
		}
	}
	os.Exit(labcli.Main(os.Args[1:]))
}

// kubectl runs kubectl against a lab: the one --dir or LAB_DIR names, else the
// default one, unless KUBECONFIG or --kubeconfig says otherwise.
func kubectl(args []string) {
	args, err := labcli.KubectlArgs(args)
	if err != nil {
		kubectlutil.CheckErr(err)
	}
	os.Args = append([]string{"kubectl"}, args...)
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
