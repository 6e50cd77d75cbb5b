//go:build !older

package main

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// versionFuncs returns functions for types that refer to themselves and that the older Kubernetes version lacks.
func versionFuncs(limited func(func())) []any {
	return []any{
		func(t *schedulingv1alpha3.CompositePodGroupTemplate, c randfill.Continue) {
			limited(func() { c.FillNoCustom(t) })
		},
		func(t *schedulingv1beta1.CompositePodGroupTemplate, c randfill.Continue) {
			limited(func() { c.FillNoCustom(t) })
		},
	}
}

func setFields(fields *metav1.FieldsV1, json []byte) { fields.SetRawBytes(json) }
