//go:build older

package main

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// This file and older.mod make the program one of an older Kubernetes version, whose objects the present schema must read.
// tests/testbed/build.sh protobuf-older builds it.

// versionFuncs returns nothing: this version has no further types that refer to themselves.
func versionFuncs(func(func())) []any { return nil }

func setFields(fields *metav1.FieldsV1, json []byte) { fields.Raw = json }
