package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

func writeObjects(out *bufio.Writer, kinds []schema.GroupVersionKind, seed int64, count int, small bool) error {
	random := rand.New(rand.NewSource(seed))
	proto := protobuf.NewSerializer(scheme, scheme)
	text := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme, scheme, kubejson.SerializerOptions{})
	most := 3
	if small {
		most = 1
	}
	for number := range count {
		// Neighbours are versions of one group.
		kind := kinds[number*7%len(kinds)]
		object, err := scheme.New(kind)
		if err != nil {
			return err
		}
		filler(random, most).Fill(object)
		// An apiserver has read its objects from protobuf, which has no empty lists, no formats of quantities and no times
		// below a second.
		read, _, err := roundTrip(proto, object, kind)
		if err != nil {
			return err
		}
		read, wire, err := roundTrip(proto, read, kind)
		if err != nil {
			return err
		}
		setClaimTypes(read)
		var want bytes.Buffer
		if err := text.Encode(read, &want); err != nil {
			return fmt.Errorf("%v as JSON: %w", kind, err)
		}
		record(out, wire)
		record(out, bytes.TrimSuffix(want.Bytes(), []byte("\n")))
	}
	return nil
}

// roundTrip returns what an object's protobuf holds, and the protobuf.
func roundTrip(proto runtime.Serializer, object runtime.Object, kind schema.GroupVersionKind) (runtime.Object, []byte, error) {
	object.GetObjectKind().SetGroupVersionKind(kind)
	var wire bytes.Buffer
	if err := proto.Encode(object, &wire); err != nil {
		return nil, nil, fmt.Errorf("%v as protobuf: %w", kind, err)
	}
	read, err := scheme.New(kind)
	if err != nil {
		return nil, nil, err
	}
	read, _, err = proto.Decode(wire.Bytes(), &kind, read)
	if err != nil {
		return nil, nil, fmt.Errorf("%v from protobuf: %w", kind, err)
	}
	read.GetObjectKind().SetGroupVersionKind(kind)
	return read, wire.Bytes(), nil
}

func record(out *bufio.Writer, data []byte) {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(data)))
	out.Write(length[:])
	out.Write(data)
}

// setClaimTypes does what kube-apiserver does when it converts.
func setClaimTypes(object runtime.Object) {
	var sets []*[]corev1.PersistentVolumeClaim
	switch object := object.(type) {
	case *appsv1.StatefulSet:
		sets = append(sets, &object.Spec.VolumeClaimTemplates)
	case *appsv1beta1.StatefulSet:
		sets = append(sets, &object.Spec.VolumeClaimTemplates)
	case *appsv1beta2.StatefulSet:
		sets = append(sets, &object.Spec.VolumeClaimTemplates)
	case *appsv1.StatefulSetList:
		for i := range object.Items {
			sets = append(sets, &object.Items[i].Spec.VolumeClaimTemplates)
		}
	case *appsv1beta1.StatefulSetList:
		for i := range object.Items {
			sets = append(sets, &object.Items[i].Spec.VolumeClaimTemplates)
		}
	case *appsv1beta2.StatefulSetList:
		for i := range object.Items {
			sets = append(sets, &object.Items[i].Spec.VolumeClaimTemplates)
		}
	}
	for _, claims := range sets {
		for i := range *claims {
			(*claims)[i].TypeMeta = metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}
		}
	}
}

func filler(random *rand.Rand, most int) *randfill.Filler {
	count := 1 + random.Intn(most)
	nils := []float64{.1, .3, .5, .8, 1}[random.Intn(5)]
	// Types that refer to themselves: a definition's schema does so in ten places.
	recursive := 12
	limited := func(fill func()) {
		if recursive--; recursive >= 0 {
			fill()
		}
	}
	return randfill.New().RandSource(random).NilChance(nils).NumElements(0, count).Funcs(
		func(t *metav1.TypeMeta, c randfill.Continue) {},
		func(s *string, c randfill.Continue) { *s = randomText(random, most) },
		func(t *metav1.Time, c randfill.Continue) { t.Time = randomTime(random) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = randomTime(random) },
		func(d *metav1.Duration, c randfill.Continue) {
			d.Duration = time.Duration(randomInt(random))
		},
		func(i *int64, c randfill.Continue) { *i = randomInt(random) },
		func(i *int32, c randfill.Continue) { *i = int32(randomInt(random)) },
		func(f *float64, c randfill.Continue) { *f = randomFloat(random) },
		func(q *resource.Quantity, c randfill.Continue) {
			formats := []resource.Format{resource.DecimalExponent, resource.BinarySI, resource.DecimalSI}
			*q = *resource.NewScaledQuantity(randomInt(random)%1_000_000, resource.Scale(random.Intn(12)-3))
			q.Format = formats[random.Intn(len(formats))]
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			if random.Intn(2) == 0 {
				*i = intstr.FromInt32(int32(randomInt(random)))
			} else {
				*i = intstr.FromString(randomText(random, most))
			}
		},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = randomJSON(random, false) },
		func(f *metav1.FieldsV1, c randfill.Continue) { setFields(f, randomJSON(random, true)) },
		func(j *apiextensionsv1.JSON, c randfill.Continue) { j.Raw = randomJSON(random, false) },
		func(j *apiextensionsv1beta1.JSON, c randfill.Continue) { j.Raw = randomJSON(random, false) },
		func(p *apiextensionsv1.JSONSchemaProps, c randfill.Continue) { limited(func() { c.FillNoCustom(p) }) },
		func(p *apiextensionsv1beta1.JSONSchemaProps, c randfill.Continue) {
			limited(func() { c.FillNoCustom(p) })
		},
	).Funcs(versionFuncs(limited)...)
}

// texts are pieces that JSON escapes, or Go's encoder alone does, and bytes that are not UTF-8.
var texts = []string{"a", "kube-system", "<&>", "\"", "\\", "\n\r\t\b\f", "\x00\x1f\x7f", "é", "\u2028\u2029", "🦀", "\ufffd", "\xff", "\xed\xa0\x80", "\xe2\x80", " ", "a.b/c-d_e"}

func randomText(random *rand.Rand, most int) string {
	if random.Intn(3) > 0 {
		return []string{"", "x", "web-7d4b9", "registry.example/app:1.2.3", "true", "IfNotPresent"}[random.Intn(6)]
	}
	var text strings.Builder
	for range random.Intn(2 + 3*most) {
		text.WriteString(texts[random.Intn(len(texts))])
	}
	return text.String()
}

func randomInt(random *rand.Rand) int64 {
	switch random.Intn(6) {
	case 0:
		return 0
	case 1:
		return -1
	case 2:
		return int64(random.Uint64())
	case 3:
		return []int64{math.MinInt64, math.MaxInt64, math.MinInt32, math.MaxInt32, 127, 128, 1500, 1_000_000_000}[random.Intn(8)]
	default:
		return random.Int63n(100_000)
	}
}

func randomFloat(random *rand.Rand) float64 {
	for {
		var number float64
		switch random.Intn(4) {
		case 0:
			number = math.Float64frombits(random.Uint64())
		case 1:
			number = float64(random.Intn(1000))
		case 2:
			number = random.Float64()
		default:
			number = []float64{0, math.Copysign(0, -1), 1e21, 1e20, 1e-6, 1e-7, 123456789e15, 5e-324, math.MaxFloat64}[random.Intn(9)]
		}
		if !math.IsNaN(number) && !math.IsInf(number, 0) {
			return number
		}
	}
}

func randomTime(random *rand.Rand) time.Time {
	switch random.Intn(6) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(0, 0)
	case 2:
		// Years 0 to 9999, as RFC 3339 has them.
		return time.Unix(-62167219200+random.Int63n(315569520000), random.Int63n(1_000_000_000))
	default:
		return time.Unix(1_700_000_000+random.Int63n(100_000_000), random.Int63n(1_000_000_000))
	}
}

func randomJSON(random *rand.Rand, object bool) []byte {
	values := []string{`{"f:metadata":{"f:labels":{".":{},"f:a<b":{}}}}`, `{ "a" : [ 1 , 2.50 , null ] }`, `{}`, `[true,"x\u003cy & z"]`, `"text"`, `1e3`, `null`, "{\"u\":\"\u2028\"}"}
	if object {
		values = values[:3]
	}
	value := []byte(values[random.Intn(len(values))])
	if !json.Valid(value) {
		panic("invalid JSON")
	}
	return value
}
