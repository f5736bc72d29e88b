package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

const (
	handovers = 4_000
	// How long the giver lets the waiter, so that it sleeps.
	settle = 50 * time.Microsecond
	crowd  = 1_000
	crowds = 9
)

// The kubelet's pod-status cache: from a set to the return of the wait that it ends.
func waiters() {
	tell("up")
	order()
	one := median(oneWaiter())
	var all []time.Duration
	for range crowds {
		all = append(all, manyWaiters())
	}
	tell(fmt.Sprintf("waited %v %v", one.Seconds()*1e6, median(all).Seconds()*1e3))
	order()
}

func oneWaiter() []time.Duration {
	const pod = types.UID("0b3a8f5e-7d0c-4e4e-9a53-6f1f7a1c2d3e")
	statuses := kubecontainer.NewCache()
	status := &kubecontainer.PodStatus{ID: pod}
	var rounds atomic.Int64
	told := make(chan time.Time, 1)
	previous := time.Now()
	go func() {
		newest := previous
		for range handovers {
			rounds.Add(1)
			_, err := statuses.GetNewerThan(pod, newest)
			told <- time.Now()
			must(err)
			newest = <-set
		}
	}()
	var times []time.Duration
	for round := range int64(handovers) {
		for rounds.Load() <= round {
		}
		for settling := time.Now(); time.Since(settling) < settle; {
		}
		before := time.Now()
		statuses.Set(pod, status, nil, before)
		times = append(times, (<-told).Sub(before))
		set <- before
	}
	return times
}

// What the waiter waits to see changed next: the kubelet's cache does not tell when it was set.
var set = make(chan time.Time, 1)

func manyWaiters() time.Duration {
	statuses := kubecontainer.NewCache()
	var started, left sync.WaitGroup
	var last atomic.Int64
	begin := time.Now()
	started.Add(crowd)
	left.Add(crowd)
	for nth := range crowd {
		go func() {
			started.Done()
			_, err := statuses.GetNewerThan(types.UID(fmt.Sprintf("pod-%d", nth)), begin)
			last.Store(int64(time.Since(begin)))
			must(err)
			left.Done()
		}()
	}
	started.Wait()
	// All of them wait by then.
	time.Sleep(20 * time.Millisecond)
	before := time.Now()
	statuses.UpdateTime(before)
	left.Wait()
	return time.Duration(last.Load()) - before.Sub(begin)
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
