// Subjects about admission that computes: LimitRange, ResourceQuota, priority, overhead, and sums of resource lists.
package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	_ "unsafe" // for go:linkname

	core "k8s.io/api/core/v1"
	node "k8s.io/api/node/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	api "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	testclock "k8s.io/utils/clock/testing"
)

var _ runtimeclass.RuntimeClass

func init() {
	defineLimitSubjects()
	defineQuotaSubjects()
	definePrioritySubjects()
}

// ---- LimitRange ----

// limitInput is a pod and the limits of its namespace by resource; quantities are texts.
type limitInput struct {
	Pod            podInput                     `json:"pod"`
	Kind           string                       `json:"kind"`
	Min            map[core.ResourceName]string `json:"min"`
	Max            map[core.ResourceName]string `json:"max"`
	Default        map[core.ResourceName]string `json:"default"`
	DefaultRequest map[core.ResourceName]string `json:"defaultRequest"`
	Ratio          map[core.ResourceName]string `json:"ratio"`
}

func (r *random) admissionLimits() limitInput {
	in := limitInput{Pod: r.pod(), Kind: pick(r, []string{"Container", "Pod"}), Min: map[core.ResourceName]string{},
		Max:     map[core.ResourceName]string{},
		Default: map[core.ResourceName]string{}, DefaultRequest: map[core.ResourceName]string{}, Ratio: map[core.ResourceName]string{}}
	for _, name := range podResources[:3] {
		for _, list := range []map[core.ResourceName]string{in.Min, in.Max, in.Default, in.DefaultRequest} {
			if r.chance(25) {
				list[name] = r.podQuantity(name)
			}
		}
		if r.chance(50) {
			in.Ratio[name] = pick(r, []string{fmt.Sprint(r.between(1, 10)),
				fmt.Sprintf("%d.%d", r.between(1, 4), r.below(1000)), r.podQuantity(name)})
		}
	}
	return in
}

// limitRange returns the object of the input.
func (in limitInput) limitRange() (*core.LimitRange, error) {
	item, lists := core.LimitRangeItem{Type: core.LimitType(in.Kind)}, []core.ResourceList{}
	for _, texts := range []map[core.ResourceName]string{in.Min, in.Max, in.Default, in.DefaultRequest, in.Ratio} {
		list, err := quantities(texts)
		if err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	item.Min, item.Max, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio = lists[0], lists[1], lists[2], lists[3], lists[4]
	if in.Kind == string(core.LimitTypePod) {
		// Validation refuses defaults of pods.
		item.Default, item.DefaultRequest = nil, nil
	}
	return &core.LimitRange{ObjectMeta: meta.ObjectMeta{Name: "limits"},
		Spec: core.LimitRangeSpec{Limits: []core.LimitRangeItem{item}}}, nil
}

func evaluateLimits(in limitInput) (any, error) {
	limits, err := in.limitRange()
	if err != nil {
		return nil, err
	}
	external, err := in.Pod.pod()
	if err != nil {
		return nil, err
	}
	pod := &api.Pod{}
	if err := corev1.Convert_v1_Pod_To_core_Pod(external, pod, nil); err != nil {
		return nil, err
	}
	if err := limitranger.PodMutateLimitFunc(limits, pod); err != nil {
		return nil, err
	}
	resources := []api.ResourceRequirements{}
	for _, c := range pod.Spec.Containers {
		resources = append(resources, c.Resources)
	}
	return map[string]any{"annotations": pod.Annotations, "resources": resources,
		"violations": violations(limitranger.PodValidateLimitFunc(limits, pod))}, nil
}

// violations returns the sorted texts of the errors: the limiter ranges over maps.
func violations(err error) []string {
	texts := []string{}
	switch err := err.(type) {
	case nil:
	case interface{ Errors() []error }:
		for _, one := range err.Errors() {
			texts = append(texts, one.Error())
		}
	default:
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	return texts
}

func defineLimitSubjects() {
	define(definition[limitInput]{
		name:     "admission.limit-range",
		about:    "plugin/pkg/admission/limitranger: defaults, minimum, maximum and the ratio of limit and request",
		generate: (*random).admissionLimits,
		evaluate: evaluateLimits,
		class:    func(in limitInput) string { return in.Pod.class() },
	})
}

// ---- ResourceQuota and sums ----

// quotaInput has pods whose usage is added, a claim, and the hard limits.
type quotaInput struct {
	Pods    []podInput                   `json:"pods"`
	Storage string                       `json:"storage"`
	Hard    map[core.ResourceName]string `json:"hard"`
}

func evaluateQuota(in quotaInput) (any, error) {
	hard, err := quantities(in.Hard)
	if err != nil {
		return nil, err
	}
	total := core.ResourceList{}
	for _, input := range in.Pods {
		pod, err := input.pod()
		if err != nil {
			return nil, err
		}
		usage, err := quotacore.PodUsageFunc(pod, testclock.NewFakeClock(controllerTime))
		if err != nil {
			return nil, err
		}
		total = quota.Add(total, usage)
	}
	storage, err := quantities(map[core.ResourceName]string{core.ResourceStorage: in.Storage})
	if err != nil {
		return nil, err
	}
	claim := &core.PersistentVolumeClaim{Spec: core.PersistentVolumeClaimSpec{Resources: core.VolumeResourceRequirements{Requests: storage}}}
	usage, err := quotacore.NewPersistentVolumeClaimEvaluator(nil).Usage(claim)
	if err != nil {
		return nil, err
	}
	total = quota.Add(total, usage)
	within, exceeded := quota.LessThanOrEqual(quota.Mask(total, quota.ResourceNames(hard)), hard)
	slices.Sort(exceeded)
	return map[string]any{"used": total, "within": within, "exceeded": exceeded,
		"left": quota.SubtractWithNonNegativeResult(hard, total)}, nil
}

func defineQuotaSubjects() {
	define(definition[quotaInput]{
		name:  "admission.quota",
		about: "pkg/quota/v1/evaluator/core and k8s.io/apiserver/pkg/quota/v1: usage of pods and claims, sums, limits, remainders",
		generate: func(r *random) quotaInput {
			in := quotaInput{Storage: r.podQuantity(core.ResourceStorage), Hard: map[core.ResourceName]string{}}
			for range r.between(1, 3) {
				in.Pods = append(in.Pods, r.pod())
			}
			for _, name := range []core.ResourceName{"requests.cpu", "limits.cpu", "requests.memory", "limits.memory",
				"pods", "requests.storage"} {
				if r.chance(60) {
					in.Hard[name] = r.podQuantity(name)
				}
			}
			return in
		},
		evaluate: evaluateQuota,
		class: func(in quotaInput) string {
			for _, pod := range in.Pods {
				if pod.extreme() {
					return "quantity beyond 9e12"
				}
			}
			return "ordinary quantities"
		},
	})
}

// ---- Priority and overhead ----

//go:linkname admissionOverhead k8s.io/kubernetes/plugin/pkg/admission/runtimeclass.setOverhead
func admissionOverhead(attributes admission.Attributes, pod *api.Pod, class *node.RuntimeClass) error

// priorityInput has the values of PriorityClasses, the index of the class of the pod or -1, and an overhead.
type priorityInput struct {
	Values   []int32                      `json:"values"`
	Default  []bool                       `json:"default"`
	Named    int                          `json:"named"`
	Pod      podInput                     `json:"pod"`
	Overhead map[core.ResourceName]string `json:"overhead"`
}

// priorityClasses is a lister of classes whose names are their indexes.
type priorityClasses []*scheduling.PriorityClass

func (p priorityClasses) List(labels.Selector) ([]*scheduling.PriorityClass, error) { return p, nil }
func (p priorityClasses) Get(name string) (*scheduling.PriorityClass, error) {
	for _, class := range p {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

func evaluatePriority(in priorityInput) (any, error) {
	external, err := in.Pod.pod()
	if err != nil || len(in.Values) != len(in.Default) {
		return nil, errNotAnInput
	}
	overhead, err := quantities(in.Overhead)
	if err != nil {
		return nil, err
	}
	pod, classes := &api.Pod{ObjectMeta: meta.ObjectMeta{Name: "a", Namespace: "default"}}, priorityClasses{}
	if err := corev1.Convert_v1_PodSpec_To_core_PodSpec(&external.Spec, &pod.Spec, nil); err != nil {
		return nil, err
	}
	for i, value := range in.Values {
		classes = append(classes, &scheduling.PriorityClass{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("class-",
			i)}, Value: value, GlobalDefault: in.Default[i]})
	}
	if in.Named >= 0 {
		pod.Spec.PriorityClassName = fmt.Sprint("class-", in.Named)
	}
	attributes := admission.NewAttributesRecord(pod, nil, schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		"default", "a",
		schema.GroupVersionResource{Version: "v1",
			Resource: "pods"}, "", admission.Create, &meta.CreateOptions{}, false, &user.DefaultInfo{})
	plugin := priority.NewPlugin()
	setField(plugin, "lister", classes)
	refused := plugin.Admit(context.Background(), attributes, nil)
	if err := admissionOverhead(attributes, pod,
		&node.RuntimeClass{Overhead: &node.Overhead{PodFixed: overhead}}); err != nil {
		return nil, err
	}
	external.Spec.Overhead = overhead
	total := resourcehelper.PodRequests(external, resourcehelper.PodResourcesOptions{})
	return map[string]any{"refused": fmt.Sprint(refused), "class": pod.Spec.PriorityClassName,
		"priority": pod.Spec.Priority,
		"overhead": pod.Spec.Overhead, "requests": total}, nil
}

func definePrioritySubjects() {
	define(definition[priorityInput]{
		name:  "admission.priority",
		about: "plugin/pkg/admission/priority and runtimeclass: the priority of a pod, its overhead, and requests with it",
		generate: func(r *random) priorityInput {
			in := priorityInput{Named: r.between(-1, 4), Pod: r.pod(), Overhead: map[core.ResourceName]string{}}
			for range r.between(0, 4) {
				in.Values, in.Default = append(in.Values,
					int32(r.int64()&math.MaxInt32)%1_000_000_001), append(in.Default, r.chance(30))
			}
			for _, name := range podResources[:2] {
				if r.chance(50) {
					in.Overhead[name] = r.podQuantity(name)
				}
			}
			return in
		},
		evaluate: evaluatePriority,
		class:    func(in priorityInput) string { return in.Pod.class() },
	})
	define(definition[[]string]{
		name:  "resource.sum",
		about: "k8s.io/apimachinery/pkg/api/resource: sums, differences, comparison and rounding of many quantities",
		generate: func(r *random) []string {
			texts := []string{}
			for range r.between(2, 12) {
				q := r.validQuantity()
				texts = append(texts, q.String())
			}
			return texts
		},
		evaluate: func(texts []string) (any, error) {
			sum, difference, answer := resource.Quantity{}, resource.Quantity{}, []any{}
			for _, text := range texts {
				q, err := resource.ParseQuantity(text)
				if err != nil {
					return nil, errNotAnInput
				}
				answer = append(answer, sum.Cmp(q))
				sum.Add(q)
				difference.Sub(q)
			}
			rounded := sum.DeepCopy()
			whole := rounded.RoundUp(0)
			return append(answer, sum.String(), difference.String(), whole, rounded.String(),
				exact(sum.AsApproximateFloat64()), exact(difference.AsFloat64Slow())), nil
		},
	})
}
