package main

import (
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
)

// scheme has the types of kube-apiserver, its extension server and its aggregator.
var scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddToScheme,
		apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
		apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme,
		metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
}

// notObjects are registered in every group and are no part of lists and watches.
var notObjects = map[string]bool{
	"CreateOptions": true, "UpdateOptions": true, "PatchOptions": true, "DeleteOptions": true, "GetOptions": true,
	"ListOptions": true, "ExportOptions": true, "WatchEvent": true, "Table": true, "TableOptions": true,
	"APIGroup": true, "APIGroupList": true, "APIResourceList": true, "APIVersions": true,
}

// builtinKinds returns the kinds that an apiserver encodes as protobuf, sorted.
func builtinKinds() ([]schema.GroupVersionKind, error) {
	var kinds []schema.GroupVersionKind
	for kind := range scheme.AllKnownTypes() {
		object, err := scheme.New(kind)
		if err != nil {
			return nil, err
		}
		_, encodes := object.(interface{ MarshalTo([]byte) (int, error) })
		isStatus := kind.Kind == "Status" && kind.Group != ""
		if encodes && !isStatus && kind.Version != runtime.APIVersionInternal && !notObjects[kind.Kind] {
			kinds = append(kinds, kind)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return strings.Compare(kinds[i].String(), kinds[j].String()) < 0 })
	return kinds, nil
}
