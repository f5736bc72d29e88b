// A stock client-go informer of ConfigMaps, which tells on its output what its handlers are told.
//
//	informer KUBECONFIG NAMESPACE
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var output sync.Mutex

func say(format string, words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", words...)
}

func key(object any) string {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return err.Error()
	}
	return name
}

func run() error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(os.Args[2]))
	informer := factory.Core().V1().ConfigMaps().Informer()
	// As the default does, and says so.
	err = informer.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
		say("error %v", err)
		cache.DefaultWatchErrorHandler(context.Background(), r, err)
	})
	if err != nil {
		return err
	}
	value := func(object any) string { return object.(*corev1.ConfigMap).Data["k"] }
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { say("add %s %s", key(object), value(object)) },
		UpdateFunc: func(_, object any) { say("update %s %s", key(object), value(object)) },
		DeleteFunc: func(object any) { say("delete %s", key(object)) },
	})
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	factory.Start(stop)
	cache.WaitForCacheSync(stop, handler.HasSynced)
	say("synced")
	// The test's end closes the input.
	buffer := make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(buffer); err != nil {
			return nil
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
