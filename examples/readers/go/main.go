// Prints the pods of all clusters of a hub, and their changes, with client-go's shared informer.
//
//	informer-hub kubeconfig > fleet.kubeconfig
//	KUBECONFIG=fleet.kubeconfig go run .
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const clusterAnnotation = "informer-hub.io/cluster"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	// Every object has a name of its own there, so the informer's store keeps all of them.
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: "fleet-unique"},
	).ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}

	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if isInInitialList {
				show("=", object)
			} else {
				show("~", object)
			}
		},
		UpdateFunc: func(_, object any) { show("~", object) },
		DeleteFunc: func(object any) {
			if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unseen.Obj
			}
			show("-", object)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

func show(change string, object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	cluster := pod.Annotations[clusterAnnotation]
	fmt.Printf("%s %s %s/%s\n", change, cluster, pod.Namespace, strings.TrimPrefix(pod.Name, cluster+":"))
}
