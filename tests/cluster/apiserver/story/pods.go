package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// runPod does what a cluster does with a pod: a controller creates it, the scheduler binds it to the node that the
// manifest names, and the kubelet says that it runs, unless the manifest says otherwise under status.
func (p *player) runPod(ctx context.Context, pod *unstructured.Unstructured) error {
	node, _, err := unstructured.NestedString(pod.Object, "spec", "nodeName")
	if err != nil || node == "" {
		return fmt.Errorf("the manifest names no node: %w", err)
	}
	unstructured.RemoveNestedField(pod.Object, "spec", "nodeName")
	status, told, err := unstructured.NestedMap(pod.Object, "status")
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(pod.Object, "status")
	if err := p.create(ctx, pod); err != nil {
		return err
	}
	created, err := p.resource(pod).Get(ctx, pod.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if bound, _, _ := unstructured.NestedString(created.Object, "spec", "nodeName"); bound == "" {
		if err := p.bind(ctx, pod, node); err != nil {
			return err
		}
	}
	if !told {
		status = runningStatus(created)
	}
	pod.Object["status"] = status
	return p.patchStatus(ctx, pod)
}

func (p *player) bind(ctx context.Context, pod *unstructured.Unstructured, node string) error {
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   map[string]any{"name": pod.GetName(), "namespace": pod.GetNamespace()},
		"target":     map[string]any{"apiVersion": "v1", "kind": "Node", "name": node},
	}}
	_, err := p.resource(pod).Create(ctx, binding, metav1.CreateOptions{FieldManager: scheduler}, "binding")
	return err
}

// debug adds the manifest's ephemeral containers to a running pod, as kubectl debug does.
func (p *player) debug(ctx context.Context, pod *unstructured.Unstructured) error {
	wanted, _, err := unstructured.NestedSlice(pod.Object, "spec", "ephemeralContainers")
	if err != nil {
		return err
	}
	current, err := p.resource(pod).Get(ctx, pod.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(current.Object, wanted, "spec", "ephemeralContainers"); err != nil {
		return err
	}
	options := metav1.UpdateOptions{FieldManager: "kubectl-debug"}
	_, err = p.resource(pod).Update(ctx, current, options, "ephemeralcontainers")
	return err
}

func runningStatus(pod *unstructured.Unstructured) map[string]any {
	now := time.Now().UTC().Format(time.RFC3339)
	conditions := make([]any, 0, 5)
	for _, name := range []string{
		"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled",
	} {
		conditions = append(conditions, map[string]any{"type": name, "status": "True", "lastTransitionTime": now})
	}
	uid := string(pod.GetUID())
	running := map[string]any{"running": map[string]any{"startedAt": now}}
	ended := map[string]any{"terminated": map[string]any{
		"exitCode": int64(0), "reason": "Completed", "startedAt": now, "finishedAt": now,
	}}
	address := "10.244.1." + fmt.Sprint(int(uid[0])%64+int(uid[1])%64+2)
	status := map[string]any{
		"phase": "Running", "startTime": now, "conditions": conditions,
		"hostIP": "192.0.2.11", "hostIPs": []any{map[string]any{"ip": "192.0.2.11"}},
		"podIP": address, "podIPs": []any{map[string]any{"ip": address}},
		"containerStatuses": containerStatuses(pod, "containers", uid, running),
	}
	if inits := containerStatuses(pod, "initContainers", uid, ended); len(inits) > 0 {
		status["initContainerStatuses"] = inits
	}
	return status
}

func containerStatuses(pod *unstructured.Unstructured, field, uid string, state map[string]any) []any {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", field)
	statuses := make([]any, 0, len(containers))
	for i, entry := range containers {
		container, _ := entry.(map[string]any)
		statuses = append(statuses, map[string]any{
			"name": container["name"], "image": container["image"],
			"imageID":     fmt.Sprintf("%v@sha256:%064x", container["image"], i+1),
			"containerID": fmt.Sprintf("containerd://%s%02d", uid, i),
			"ready":       true, "started": field == "containers", "restartCount": int64(0), "state": state,
		})
	}
	return statuses
}

// encodeStringData turns the readable stringData of a Secret's manifest into data, as a server would store it.
func encodeStringData(object *unstructured.Unstructured) {
	texts, found, err := unstructured.NestedStringMap(object.Object, "stringData")
	if err != nil || !found {
		return
	}
	data := make(map[string]any, len(texts))
	for key, text := range texts {
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	object.Object["data"] = data
	unstructured.RemoveNestedField(object.Object, "stringData")
}
