package main

import (
	"context"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/kubelet/secret"
)

const (
	namespace = "shop"
	// Reads per repeat, and repeats; the median counts.
	reads   = 200_000
	repeats = 7
	// Objects that each pod of the way "pods" refers to.
	perPod = 10
)

func names(t task) []string {
	var names []string
	for nth := range t.count {
		names = append(names, fmt.Sprintf("secret-%d", nth))
	}
	return names
}

func watches(t task) {
	_, way := client(t)
	if way == "reflectors" {
		reflectors(t)
	} else {
		manager(t, way)
	}
}

// The kubelet's watching manager.
func manager(t task, way string) {
	clientset, _ := client(t)
	names := names(t)
	each := len(names)
	if way == "pods" {
		each = perPod
	}
	var pods []*corev1.Pod
	for some := range slices.Chunk(names, each) {
		name := fmt.Sprintf("pod-%d", len(pods))
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}
		pod := &corev1.Pod{ObjectMeta: meta}
		for _, name := range some {
			source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
			volume := corev1.Volume{Name: name, VolumeSource: source}
			pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		}
		pods = append(pods, pod)
	}
	// No watch becomes idle while this runs.
	secrets := secret.NewWatchingSecretManager(clientset, time.Hour)
	tell("up")
	order()
	for _, pod := range pods {
		secrets.RegisterPod(pod)
	}
	for _, name := range names {
		// A get waits for a second.
		for {
			if _, err := secrets.GetSecret(namespace, name); err == nil {
				break
			}
		}
	}
	tell("read")
	if order() == "get" {
		measure(names, func(name string) {
			found, err := secrets.GetSecret(namespace, name)
			must(err)
			if way == "manager-looks" {
				runtime.KeepAlive(look(found))
			}
		})
		order()
	}
}

// Plain reflectors, which can be joined.
func reflectors(t task) {
	clientset, _ := client(t)
	api := clientset.CoreV1().RESTClient()
	names := names(t)
	tell("up")
	order()
	context, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var stores []cache.Store
	for _, name := range names {
		selector := fields.OneTermEqualSelector("metadata.name", name)
		source := cache.NewListWatchFromClient(api, "secrets", namespace, selector)
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		options := cache.ReflectorOptions{}
		reflector := cache.NewReflectorWithOptions(source, &corev1.Secret{}, store, options)
		stores = append(stores, store)
		running.Go(func() { reflector.RunWithContext(context) })
	}
	for nth, name := range names {
		waitFor(func() bool {
			_, exists, _ := stores[nth].GetByKey(namespace + "/" + name)
			return exists
		})
	}
	tell("read")
	if order() == "stop" {
		begun := time.Now()
		stop()
		running.Wait()
		tell(fmt.Sprintf("stopped %v", time.Since(begun).Seconds()))
		order()
	}
}

// A store of as many objects, read.
func store(t task) {
	clientset, way := client(t)
	api := clientset.CoreV1().RESTClient()
	source := cache.NewListWatchFromClient(api, "secrets", namespace, fields.Everything())
	objects := cache.NewStore(cache.MetaNamespaceKeyFunc)
	options := cache.ReflectorOptions{}
	reflector := cache.NewReflectorWithOptions(source, &corev1.Secret{}, objects, options)
	tell("up")
	order()
	go reflector.RunWithContext(context.Background())
	waitFor(func() bool { return len(objects.ListKeys()) == t.count })
	tell("read")
	order()
	measure(names(t), func(name string) {
		found, exists, _ := objects.GetByKey(namespace + "/" + name)
		if !exists {
			panic(name)
		}
		if way == "store-looks" {
			runtime.KeepAlive(look(found.(*corev1.Secret)))
		}
	})
	order()
}

// What a reader has of a Secret: the first byte of each value.
func look(secret *corev1.Secret) int {
	sum := 0
	for _, value := range secret.Data {
		sum += int(value[0])
	}
	return sum
}

// Nanoseconds of a read on one goroutine, and on each of two.
func measure(names []string, read func(string)) {
	random := rand.New(rand.NewSource(1))
	var order []string
	for range reads {
		order = append(order, names[random.Intn(len(names))])
	}
	all := func() {
		for _, name := range order {
			read(name)
		}
	}
	var one, two []float64
	for range repeats {
		begun := time.Now()
		all()
		one = append(one, float64(time.Since(begun).Nanoseconds())/reads)
		begun = time.Now()
		var both sync.WaitGroup
		both.Go(all)
		both.Go(all)
		both.Wait()
		two = append(two, float64(time.Since(begun).Nanoseconds())/reads)
	}
	slices.Sort(one)
	slices.Sort(two)
	tell(fmt.Sprintf("got %v %v", one[repeats/2], two[repeats/2]))
}
