package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A phase is a directory; its files are played in the order of their names, NN-<verb>-<subject>.yaml, and each
// document of a file is one object to which the verb is done.
//
//go:embed phases
var phaseFiles embed.FS

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// The field's writers, under whose names the objects get their managedFields.
const (
	deployer   = "argocd-controller"
	kubectl    = "kubectl-client-side-apply"
	controller = "kube-controller-manager"
	scheduler  = "kube-scheduler"
	kubelet    = "kubelet"
)

type player struct {
	client dynamic.Interface
	config *rest.Config
}

type step func(p *player, ctx context.Context, object *unstructured.Unstructured) error

var verbs = map[string]step{
	"apply":   (*player).apply,
	"kubectl": (*player).kubectlApply,
	"create":  (*player).create,
	"publish": (*player).publishAuthority,
	"pod":     (*player).runPod,
	"debug":   (*player).debug,
	"status":  (*player).patchStatus,
	"delete":  (*player).remove,
}

func newPlayer(kubeconfig string) (*player, error) {
	if kubeconfig == "" {
		return nil, fmt.Errorf("%w: --kubeconfig is missing", errUsage)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	return &player{client: client, config: config}, err
}

func phaseNames() ([]string, error) {
	entries, err := fs.ReadDir(phaseFiles, "phases")
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

func (p *player) play(ctx context.Context, phase string) error {
	dir := path.Join("phases", phase)
	entries, err := fs.ReadDir(phaseFiles, dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		parts := strings.SplitN(entry.Name(), "-", 3)
		if len(parts) != 3 {
			return fmt.Errorf("%s: the name is not NN-<verb>-<subject>.yaml", entry.Name())
		}
		verb, known := verbs[parts[1]]
		if !known {
			return fmt.Errorf("%s: no verb %q", entry.Name(), parts[1])
		}
		content, err := phaseFiles.ReadFile(path.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		if err := p.playFile(ctx, content, verb); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return nil
}

func (p *player) playFile(ctx context.Context, content []byte, verb step) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		encodeStringData(object)
		if err := verb(p, ctx, object); err != nil {
			return fmt.Errorf("%s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
	}
}

// resource gives the client for the object's kind and namespace. The story's kinds form their plurals regularly.
func (p *player) resource(object *unstructured.Unstructured) dynamic.ResourceInterface {
	kind := object.GroupVersionKind()
	resource := schema.GroupVersionResource{
		Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s",
	}
	if object.GetNamespace() == "" {
		return p.client.Resource(resource)
	}
	return p.client.Resource(resource).Namespace(object.GetNamespace())
}

// apply is a server-side apply, as a deployment tool does it.
func (p *player) apply(ctx context.Context, object *unstructured.Unstructured) error {
	options := metav1.ApplyOptions{FieldManager: deployer, Force: true}
	_, err := p.resource(object).Apply(ctx, object.GetName(), object, options)
	return err
}

// kubectlApply leaves what kubectl apply leaves: the whole object once more, in an annotation.
func (p *player) kubectlApply(ctx context.Context, object *unstructured.Unstructured) error {
	whole, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[lastApplied] = string(whole) + "\n"
	object.SetAnnotations(annotations)
	_, err = p.resource(object).Create(ctx, object, metav1.CreateOptions{FieldManager: kubectl})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	content, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: kubectl}
	_, err = p.resource(object).Patch(ctx, object.GetName(), types.MergePatchType, content, options)
	return err
}

func (p *player) create(ctx context.Context, object *unstructured.Unstructured) error {
	_, err := p.resource(object).Create(ctx, object, metav1.CreateOptions{FieldManager: controller})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// publishAuthority fills in the cluster's CA, which a controller would do if one ran here.
func (p *player) publishAuthority(ctx context.Context, object *unstructured.Unstructured) error {
	data := map[string]string{"ca.crt": string(p.config.CAData)}
	if err := unstructured.SetNestedStringMap(object.Object, data, "data"); err != nil {
		return err
	}
	return p.create(ctx, object)
}

// remove deletes at once, and does not mind when there is nothing to delete.
func (p *player) remove(ctx context.Context, object *unstructured.Unstructured) error {
	now := int64(0)
	err := p.resource(object).Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *player) patchStatus(ctx context.Context, object *unstructured.Unstructured) error {
	content, err := json.Marshal(map[string]any{"status": object.Object["status"]})
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: kubelet}
	_, err = p.resource(object).Patch(ctx, object.GetName(), types.MergePatchType, content, options, "status")
	return err
}

// ready asks /readyz, whose body names the checks that fail.
func (p *player) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(p.config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.Host+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode == http.StatusOK {
		return err
	}
	failed := slices.DeleteFunc(strings.Split(string(body), "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "[-]")
	})
	return fmt.Errorf("%s %s", answer.Status, strings.Join(failed, ", "))
}
