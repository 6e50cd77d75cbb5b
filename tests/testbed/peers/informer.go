package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// newConfig returns a client configuration for a URL or a kubeconfig's path.
func newConfig(url string) (*rest.Config, error) {
	switch {
	case strings.HasPrefix(url, "https:"):
		return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil
	case strings.HasPrefix(url, "http:"):
		return &rest.Config{Host: url, QPS: -1}, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", url)
	if err == nil {
		config.QPS = -1
	}
	return config, err
}

// newInformer creates a shared informer of pods, with the hub's two indices if its objects have the fields.
func newInformer(kind, url string) (cache.SharedIndexInformer, func(), error) {
	config, err := newConfig(url)
	if err != nil {
		return nil, nil, err
	}
	never := make(chan struct{})
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	switch kind {
	case "json", "protobuf":
		if kind == "protobuf" {
			config.ContentType = "application/vnd.kubernetes.protobuf"
			config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		}
		if kind == "json" {
			// The default prefers protobuf.
			config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().Pods().Informer()
		return informer, func() { factory.Start(never) }, informer.AddIndexers(typedIndexers())
	case "dynamic":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		informer := factory.ForResource(pods).Informer()
		return informer, func() { factory.Start(never) }, informer.AddIndexers(dynamicIndexers())
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := metadatainformer.NewSharedInformerFactory(client, 0)
		return factory.ForResource(pods).Informer(), func() { factory.Start(never) }, nil
	default:
		return nil, nil, fmt.Errorf("no kind of informer: %q", kind)
	}
}

func typedIndexers() cache.Indexers {
	return cache.Indexers{
		"by-node": func(object any) ([]string, error) {
			return []string{object.(*corev1.Pod).Spec.NodeName}, nil
		},
		"by-image": func(object any) ([]string, error) {
			var images []string
			for _, container := range object.(*corev1.Pod).Spec.Containers {
				images = append(images, container.Image)
			}
			return images, nil
		},
	}
}

func dynamicIndexers() cache.Indexers {
	return cache.Indexers{
		"by-node": func(object any) ([]string, error) {
			node, _, err := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "spec", "nodeName")
			return []string{node}, err
		},
		"by-image": func(object any) ([]string, error) {
			containers, _, err := unstructured.NestedSlice(object.(*unstructured.Unstructured).Object, "spec", "containers")
			var images []string
			for _, container := range containers {
				if fields, ok := container.(map[string]any); ok {
					image, _ := fields["image"].(string)
					images = append(images, image)
				}
			}
			return images, err
		},
	}
}
