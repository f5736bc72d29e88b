package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// The object that the watch adds last.
const last = "team-0/the-last"

// A collection: a list, then the events of its watch.
func collection(t task) {
	clientset, way := client(t)
	api := clientset.CoreV1().RESTClient()
	source := cache.NewListWatchFromClient(api, t.resource, "", fields.Everything())
	var kind runtime.Object = &corev1.ConfigMap{}
	if t.resource == "pods" {
		kind = &corev1.Pod{}
	}
	tell("up")
	order()
	var has func() bool
	switch way {
	case "store":
		objects := cache.NewStore(cache.MetaNamespaceKeyFunc)
		reflector := cache.NewReflectorWithOptions(source, kind, objects, cache.ReflectorOptions{})
		go reflector.RunWithContext(context.Background())
		waitFor(func() bool {
			return reflector.LastSyncResourceVersion() != "" && len(objects.ListKeys()) == t.count
		})
		has = func() bool { _, exists, _ := objects.GetByKey(last); return exists }
	case "informer":
		var seen atomic.Bool
		informer := cache.NewSharedInformer(source, kind, 0)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
			if key, _ := cache.MetaNamespaceKeyFunc(object); key == last {
				seen.Store(true)
			}
		}})
		must(err)
		go informer.Run(make(chan struct{}))
		waitFor(informer.HasSynced)
		if len(informer.GetStore().ListKeys()) != t.count {
			panic("not all objects are there")
		}
		has = seen.Load
	default:
		panic("unknown way " + way)
	}
	tell("synced")
	// Looking must cost little beside events that come seldom.
	switch next := order(); {
	case next == "events":
		waitFor(has)
	case strings.HasPrefix(next, "paced "):
		lookEvery(100*time.Millisecond, has)
	default:
		return
	}
	tell("done")
	order()
}

func waitFor(reached func() bool) { lookEvery(time.Millisecond, reached) }

func lookEvery(interval time.Duration, reached func() bool) {
	for !reached() {
		time.Sleep(interval)
	}
}
