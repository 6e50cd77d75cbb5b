package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The text begins with the version and has a line for each message, field and kind. crates/protobuf/src/schema.rs reads it.
//
//	kubernetes v1.37.2
//	message core/v1.Pod
//	NUMBER LABEL SHAPE RULE NAME [MESSAGE]
//	kind GROUP/VERSION KIND MESSAGE
//
// Fields are in the order of the Go struct, which is that of the JSON.
// LABEL: `.` one, `?` pointer, `*` repeated, `%` map with string keys.
// SHAPE: s string, b bool, i int32, l int64, d double, y bytes, m message, x message that is an array of strings in JSON,
// q Quantity, n IntOrString, t Time, u MicroTime, o Duration, r raw JSON, and of definitions' schemas: B or bool, A or array,
// S or array of strings; c a constant text, which protobuf lacks.
// RULE: `.` always, `o` omitempty, `z` omitted if zero, `i` members of the message inline.

// special are the types with a JSON form of their own.
var special = map[string]byte{
	"meta/v1.Time": 't', "meta/v1.MicroTime": 'u', "meta/v1.Duration": 'o', "meta/v1.FieldsV1": 'r',
	"api/resource.Quantity": 'q', "util/intstr.IntOrString": 'n', "runtime.RawExtension": 'r',
}

// definitions are such types of both versions of custom resource definitions.
var definitions = map[string]byte{
	"JSON": 'r', "JSONSchemaPropsOrBool": 'B', "JSONSchemaPropsOrArray": 'A', "JSONSchemaPropsOrStringArray": 'S',
}

type schemaWriter struct {
	messages map[string][]string
	types    map[string]reflect.Type
}

func writeSchema(out *bufio.Writer, kinds []schema.GroupVersionKind) error {
	writer := schemaWriter{messages: map[string][]string{}, types: map[string]reflect.Type{}}
	var lines []string
	for _, kind := range kinds {
		message, err := writer.message(scheme.AllKnownTypes()[kind], "")
		if err != nil {
			return fmt.Errorf("%v: %w", kind, err)
		}
		group := kind.Group
		if group != "" {
			group += "/"
		}
		lines = append(lines, fmt.Sprintf("kind %s%s %s %s", group, kind.Version, kind.Kind, message))
	}
	fmt.Fprintf(out, "kubernetes %s\n", kubernetesVersion())
	var names []string
	for name := range writer.messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "message %s\n", name)
		for _, field := range writer.messages[name] {
			fmt.Fprintln(out, field)
		}
	}
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	return nil
}

// kubernetesVersion returns the version that go.mod requires.
func kubernetesVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "k8s.io/api" {
			version := module.Version
			if module.Replace != nil {
				version = module.Replace.Version
			}
			return "v1" + strings.TrimPrefix(version, "v0")
		}
	}
	return "unknown"
}

func shortName(t reflect.Type) string {
	path := t.PkgPath()
	for _, prefix := range []string{
		"k8s.io/apimachinery/pkg/apis/", "k8s.io/apimachinery/pkg/", "k8s.io/apiextensions-apiserver/pkg/apis/",
		"k8s.io/kube-aggregator/pkg/apis/", "k8s.io/api/",
	} {
		path = strings.TrimPrefix(path, prefix)
	}
	return path + "." + t.Name()
}

// message adds a struct and what it refers to. `typeMeta` is the value of its kind and apiVersion, if the apiserver sets them
// in a nested object, where protobuf has none.
func (w *schemaWriter) message(t reflect.Type, typeMeta string) (string, error) {
	name := shortName(t)
	if typeMeta != "" {
		name += "+type"
	}
	if _, known := w.messages[name]; known {
		return name, nil
	}
	w.messages[name] = nil
	var fields []string
	if typeMeta != "" {
		version, kind, _ := strings.Cut(typeMeta, " ")
		fields = append(fields, "0 . c . kind "+kind, "0 . c . apiVersion "+version)
	}
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			if field.Tag.Get("protobuf") != "" {
				return "", fmt.Errorf("%s: TypeMeta is a part of the protobuf", name)
			}
			continue
		}
		line, err := w.field(t, field)
		if err != nil {
			return "", fmt.Errorf("%s.%s: %w", name, field.Name, err)
		}
		if line != "" {
			fields = append(fields, line)
		}
	}
	w.messages[name] = fields
	return name, nil
}

func (w *schemaWriter) field(owner reflect.Type, field reflect.StructField) (string, error) {
	jsonName, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		if jsonName == "-" || !field.IsExported() {
			return "", nil
		}
		return "", fmt.Errorf("no protobuf tag")
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		return "", err
	}
	rule := "."
	for _, option := range strings.Split(options, ",") {
		switch {
		case option == "omitzero":
			rule = "z"
		case option == "omitempty" && rule != "z":
			rule = "o"
		}
	}
	if jsonName == "" && field.Anonymous {
		rule, jsonName = "i", "-"
	} else if jsonName == "" {
		jsonName = field.Name
	}
	if jsonName == "-" && rule != "i" {
		return "", fmt.Errorf("in protobuf, but not in JSON")
	}
	label, shape, ref, err := w.shape(owner, field)
	if err != nil {
		return "", err
	}
	if rule == "i" && (label != '.' || shape != 'm') {
		return "", fmt.Errorf("an embedded field that is no struct")
	}
	if rule == "z" && shape != 't' {
		return "", fmt.Errorf("omitzero is known for times only")
	}
	line := fmt.Sprintf("%d %c %c %s %s", number, label, shape, rule, jsonName)
	if ref != "" {
		line += " " + ref
	}
	return line, nil
}

func (w *schemaWriter) shape(owner reflect.Type, field reflect.StructField) (label, shape byte, ref string, err error) {
	t, label := field.Type, byte('.')
	switch {
	case t.Kind() == reflect.Pointer:
		t, label = t.Elem(), '?'
	case t.Kind() == reflect.Map:
		if t.Key().Kind() != reflect.String {
			return 0, 0, "", fmt.Errorf("a map with keys of type %v", t.Key())
		}
		t, label = t.Elem(), '%'
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !encodesItself(t):
		t, label = t.Elem(), '*'
	}
	typeMeta := ""
	// kube-apiserver sets these when it converts (pkg/apis/apps/v1/conversion.go).
	if owner.Name() == "StatefulSetSpec" && field.Name == "VolumeClaimTemplates" {
		typeMeta = "v1 PersistentVolumeClaim"
	}
	shape, ref, err = w.value(t, typeMeta)
	return label, shape, ref, err
}

func encodesItself(t reflect.Type) bool {
	_, encodes := reflect.PointerTo(t).MethodByName("MarshalToSizedBuffer")
	return encodes
}

func (w *schemaWriter) value(t reflect.Type, typeMeta string) (shape byte, ref string, err error) {
	if shape, ok := special[shortName(t)]; ok {
		return shape, "", nil
	}
	if shape, ok := definitions[t.Name()]; ok && strings.Contains(t.PkgPath(), "/apiextensions/") {
		if shape == 'r' {
			return shape, "", nil
		}
		schema, found := t.FieldByName("Schema")
		if !found {
			return 0, "", fmt.Errorf("%v has no schema", t)
		}
		ref, err := w.message(schema.Type.Elem(), "")
		return shape, ref, err
	}
	if marshaler := reflect.TypeFor[json.Marshaler](); t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return 0, "", fmt.Errorf("%v has a JSON form that is not known here", t)
	}
	switch t.Kind() {
	case reflect.String:
		return 's', "", nil
	case reflect.Bool:
		return 'b', "", nil
	case reflect.Int32:
		return 'i', "", nil
	case reflect.Int64:
		return 'l', "", nil
	case reflect.Float64:
		return 'd', "", nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return 'y', "", nil
		}
		if encodesItself(t) && t.Elem().Kind() == reflect.String {
			return 'x', "", nil
		}
	case reflect.Struct:
		ref, err := w.message(t, typeMeta)
		return 'm', ref, err
	}
	return 0, "", fmt.Errorf("type %v is not known here", t)
}
