package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// clusterKey is the annotation and the label that name an object's cluster at a fleet root.
const clusterKey = "informer-hub.io/cluster"

// object is an object in a store. Hash covers its JSON without resourceVersion, managedFields and the marks of a fleet
// root, so that an object has the same hash at each root.
type object struct {
	Key     string `json:"key"`
	Cluster string `json:"cluster,omitempty"`
	UID     string `json:"uid"`
	Version string `json:"version"`
	Hash    string `json:"hash"`
	Error   string `json:"error,omitempty"`
}

func describe(key string, stored any) object {
	line := object{Key: key}
	original, ok := stored.(runtime.Object)
	if !ok {
		line.Error = fmt.Sprintf("stored as %T", stored)
		return line
	}
	copied := original.DeepCopyObject()
	head, err := meta.Accessor(copied)
	if err != nil {
		line.Error = err.Error()
		return line
	}
	line.UID, line.Version = string(head.GetUID()), head.GetResourceVersion()
	head.SetResourceVersion("")
	head.SetManagedFields(nil)
	line.Cluster = head.GetAnnotations()[clusterKey]
	if named := head.GetLabels()[clusterKey]; named != line.Cluster {
		line.Error = fmt.Sprintf("the annotation names cluster %q, the label %q", line.Cluster, named)
	}
	if line.Cluster != "" {
		head.SetName(strings.TrimPrefix(head.GetName(), line.Cluster+":"))
		head.SetAnnotations(without(head.GetAnnotations()))
		head.SetLabels(without(head.GetLabels()))
	}
	if _, untyped := copied.(*unstructured.Unstructured); !untyped {
		// Present or absent, depending on where the client got the object.
		copied.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	text, err := json.Marshal(copied)
	if err != nil {
		line.Error = err.Error()
	}
	sum := sha256.Sum256(text)
	line.Hash = hex.EncodeToString(sum[:8])
	return line
}

// without returns a map without the cluster, nil if it is empty then.
func without(values map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range values {
		if key != clusterKey {
			rest[key] = value
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// list lists all objects of a reader's resource, with the client of its mode.
func list(ctx context.Context, spec spec, config *rest.Config) ([]object, error) {
	listed, err := listObjects(ctx, spec, config)
	if err != nil {
		return nil, err
	}
	objects := []object{}
	err = meta.EachListItem(listed, func(item runtime.Object) error {
		key, err := cache.MetaNamespaceKeyFunc(item)
		objects = append(objects, describe(key, item))
		return err
	})
	return objects, err
}

func listObjects(ctx context.Context, spec spec, config *rest.Config) (runtime.Object, error) {
	switch spec.mode {
	case "typed", "json", "protobuf":
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		if spec.resource.Resource != "pods" {
			return nil, fmt.Errorf("%s: only pods are listed in typed form", spec.resource)
		}
		return client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return client.Resource(spec.resource).List(ctx, metav1.ListOptions{})
	default:
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return client.Resource(spec.resource).List(ctx, metav1.ListOptions{})
	}
}
