package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// How many groups the objects are in; a change may move an object to another.
const groups = 20

// churn is one writer's part of a collection of ConfigMaps. Nobody else writes to its objects, so what it knows of them
// is true.
type churn struct {
	client  dynamic.ResourceInterface
	random  *rand.Rand
	names   []string
	exists  map[string]bool
	changes int
}

// playChurn makes ConfigMaps, then updates, deletes and re-creates them at random, from several writers at once. It says
// on standard output when all are there, and after each third of the changes. A server that is away is waited for.
func playChurn(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("story churn", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig to act with")
	namespace := flags.String("namespace", "churn", "where the objects are")
	objects := flags.Int("objects", 5000, "how many there are at the beginning")
	changes := flags.Int("changes", 5000, "how many changes follow")
	writers := flags.Int("writers", 4, "how many write at once")
	seed := flags.Uint64("seed", 1, "what is changed, and how")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 || *writers < 1 {
		return errUsage
	}
	player, err := newPlayer(*kubeconfig)
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	parts := make([]*churn, *writers)
	for writer := range parts {
		parts[writer] = &churn{
			client: player.client.Resource(resource).Namespace(*namespace),
			random: rand.New(rand.NewPCG(*seed, uint64(writer))),
			exists: map[string]bool{},
		}
	}
	for number := range *objects {
		part := parts[number%*writers]
		part.names = append(part.names, fmt.Sprintf("object-%05d", number))
	}
	third := func(part *churn) error { return part.changeSome(ctx, *changes / *writers / 3) }
	stages := []struct {
		done string
		do   func(*churn) error
	}{
		{"created", func(part *churn) error { return part.createAll(ctx) }},
		{"first third", third},
		{"second third", third},
		{"last third", third},
	}
	for _, stage := range stages {
		if err := together(parts, stage.do); err != nil {
			return err
		}
		fmt.Println(stage.done)
	}
	return nil
}

// together waits for all parts and gives what failed.
func together(parts []*churn, do func(*churn) error) error {
	failures := make([]error, len(parts))
	var running sync.WaitGroup
	for number, part := range parts {
		running.Go(func() { failures[number] = do(part) })
	}
	running.Wait()
	return errors.Join(failures...)
}

func (c *churn) createAll(ctx context.Context) error {
	for _, name := range c.names {
		if err := c.create(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// changeSome does three updates for a delete; what was deleted is created again when its turn comes.
func (c *churn) changeSome(ctx context.Context, count int) error {
	for range count {
		name := c.names[c.random.IntN(len(c.names))]
		change := c.update
		switch {
		case !c.exists[name]:
			change = c.create
		case c.random.IntN(4) == 0:
			change = c.remove
		}
		if err := change(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) create(ctx context.Context, name string) error {
	object := c.object(name)
	return c.retried(ctx, name, func() error {
		_, err := c.client.Create(ctx, object, metav1.CreateOptions{FieldManager: deployer})
		// An answer may have been lost with the server.
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		c.exists[name] = true
		return err
	})
}

func (c *churn) update(ctx context.Context, name string) error {
	object := c.object(name)
	return c.retried(ctx, name, func() error {
		_, err := c.client.Update(ctx, object, metav1.UpdateOptions{FieldManager: deployer})
		return err
	})
}

func (c *churn) remove(ctx context.Context, name string) error {
	return c.retried(ctx, name, func() error {
		err := c.client.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		c.exists[name] = false
		return err
	})
}

func (c *churn) object(name string) *unstructured.Unstructured {
	c.changes++
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": name},
		"data": map[string]any{
			"change": strconv.Itoa(c.changes),
			"group":  fmt.Sprintf("group-%02d", c.random.IntN(groups)),
		},
	}}
}

// retried tries again while the server is away or not ready; what it refuses is a mistake of ours.
func (c *churn) retried(ctx context.Context, name string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		var status apierrors.APIStatus
		if errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err) &&
			!apierrors.IsForbidden(err) {
			return fmt.Errorf("%s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
