package main

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// As in ../../readers/load.rs.
const (
	readersCount = 50
	listPeriod   = 500 * time.Millisecond
	getsAtOnce   = 50
	getPeriod    = 10 * time.Millisecond
	writePace    = 500 * time.Microsecond
	partLength   = 5 * time.Second
	firstOfAll   = -20
)

// An indexer that 50 goroutines read while one writes, at full rate and then paced: how long each
// waits.
func readers(t task) {
	tell("up")
	order()
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	var names []string
	for nth := range t.count {
		names = append(names, fmt.Sprintf("map-%06d", nth))
		must(store.Add(mapOf(names[nth], 1)))
	}
	version := t.count
	write, list, get := part(store, names, 0, &version)
	rate := float64(version-t.count) / partLength.Seconds()
	paced, _, _ := part(store, names, writePace, &version)
	tell(fmt.Sprintf("waited %v %v %v %v %v", rate, write, paced, list, get))
	order()
}

func mapOf(name string, version int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: strconv.Itoa(version),
		},
		Data: map[string]string{"key": "value"},
	}
}

// Reads on all goroutines while this one writes: the 99.9th percentiles of writes, lists and gets.
func part(
	store cache.Indexer, names []string, pace time.Duration, version *int,
) (float64, float64, float64) {
	end := make(chan struct{})
	var mutex sync.Mutex
	var writes, lists, gets []time.Duration
	var all sync.WaitGroup
	for reader := range readersCount {
		all.Go(func() {
			listed, got := readUntil(store, names, reader, end)
			mutex.Lock()
			defer mutex.Unlock()
			lists, gets = append(lists, listed...), append(gets, got...)
		})
	}
	// This thread comes before all others, if it may: what it waits for is then no core.
	runtime.LockOSThread()
	thread := syscall.Gettid()
	isFirst := syscall.Setpriority(syscall.PRIO_PROCESS, thread, firstOfAll) == nil
	begun := time.Now()
	due := begun
	for time.Since(begun) < partLength {
		*version++
		object := mapOf(names[*version*7919%len(names)], *version)
		if pace > 0 {
			due = due.Add(pace)
			time.Sleep(time.Until(due))
		}
		from := time.Now()
		must(store.Update(object))
		writes = append(writes, time.Since(from))
	}
	close(end)
	all.Wait()
	if isFirst {
		must(syscall.Setpriority(syscall.PRIO_PROCESS, thread, 0))
	}
	runtime.UnlockOSThread()
	return ofThousand(writes), ofThousand(lists), ofThousand(gets)
}

// One reader: how long its lists and its gets took.
func readUntil(
	store cache.Indexer, names []string, reader int, end chan struct{},
) (lists, gets []time.Duration) {
	at := reader * 104_729
	// The readers do not list in step.
	next := time.Now().Add(listPeriod / readersCount * time.Duration(reader))
	for {
		select {
		case <-end:
			return
		case <-time.After(getPeriod):
		}
		if !time.Now().Before(next) {
			next = next.Add(listPeriod)
			begun := time.Now()
			if len(store.List()) != len(names) {
				panic("an object is missing")
			}
			lists = append(lists, time.Since(begun))
		}
		for range getsAtOnce {
			at = (at + 7919) % len(names)
			begun := time.Now()
			if _, exists, _ := store.GetByKey(namespace + "/" + names[at]); !exists {
				panic(names[at])
			}
			gets = append(gets, time.Since(begun))
		}
	}
}

// The 99.9th percentile, in microseconds.
func ofThousand(times []time.Duration) float64 {
	slices.Sort(times)
	return times[(len(times)-1)*999/1000].Seconds() * 1e6
}
