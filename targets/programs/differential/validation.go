// Subjects about the validation of built-in objects, with boundary values in numeric fields.
package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
)

// validated is a type with its create strategy and a valid object.
type validated struct {
	strategy rest.RESTCreateStrategy
	// fields is the JSON text of a valid object without its type and metadata.
	fields string
}

const (
	validPodSpec = `{"containers":[{"name":"a","image":"a","ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"1","memory":"1Gi"},` +
		`"limits":{"cpu":"2","memory":"1Gi"}},"livenessProbe":{"httpGet":{"path":"/","port":80}},"startupProbe":{"tcpSocket":{"port":"x"}}}],` +
		`"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute"}],"volumes":[{"name":"v","emptyDir":{}},{"name":"c","configMap":{"name":"c"}}],` +
		`"securityContext":{"runAsUser":1},"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}],` +
		`"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":` +
		`[{"key":"a","operator":"Gt","values":["1"]}]}}]}}}`
	validTemplate = `{"metadata":{"labels":{"a":"b"}},"spec":` + validPodSpec + `}`
	validSelector = `{"matchLabels":{"a":"b"}}`
	validJobSpec  = `{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}},"completionMode":"Indexed",` +
		`"completions":3,"parallelism":2,"backoffLimitPerIndex":1,"podFailurePolicy":{"rules":[{"action":"FailJob","onExitCodes":` +
		`{"operator":"In","values":[1,2]}}]},"successPolicy":{"rules":[{"succeededIndexes":"0-1","succeededCount":1}]}}`
)

// validatedKinds are types whose objects have numbers.
var validatedKinds = map[string]validated{
	"apps/v1/Deployment":  {deployment.Strategy, `"spec":{"selector":` + validSelector + `,"template":` + validTemplate + `}`},
	"apps/v1/ReplicaSet":  {replicaset.Strategy, `"spec":{"selector":` + validSelector + `,"template":` + validTemplate + `}`},
	"apps/v1/DaemonSet":   {daemonset.Strategy, `"spec":{"selector":` + validSelector + `,"template":` + validTemplate + `}`},
	"apps/v1/StatefulSet": {statefulset.Strategy, `"spec":{"serviceName":"s","selector":` + validSelector + `,"template":` + validTemplate + `}`},
	"v1/Pod":              {pod.Strategy, `"spec":` + validPodSpec},
	"batch/v1/Job":        {job.Strategy, `"spec":` + validJobSpec},
	"batch/v1/CronJob":    {cronjob.Strategy, `"spec":{"schedule":"*/5 * * * *","jobTemplate":{"spec":` + validJobSpec + `}}`},
	"autoscaling/v2/HorizontalPodAutoscaler": {horizontalpodautoscaler.Strategy, `"spec":{"maxReplicas":5,"scaleTargetRef":{"apiVersion":"a/v1","kind":"A","name":"a"},` +
		`"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}],` +
		`"behavior":{"scaleUp":{"policies":[{"type":"Pods","value":4,"periodSeconds":60}]},"scaleDown":{"stabilizationWindowSeconds":300}}}`},
	"autoscaling/v1/HorizontalPodAutoscaler": {horizontalpodautoscaler.Strategy, `"spec":{"maxReplicas":5,"scaleTargetRef":{"apiVersion":"a/v1","kind":"A","name":"a"}}`},
	"policy/v1/PodDisruptionBudget":          {poddisruptionbudget.Strategy, `"spec":{"selector":` + validSelector + `}`},
	"v1/ResourceQuota":                       {resourcequota.Strategy, `"spec":{"hard":{"cpu":"1","pods":"3","requests.storage":"1Gi"}}`},
	"v1/LimitRange": {limitrange.Strategy, `"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"min":{"cpu":"1"},"default":{"cpu":"2"},` +
		`"defaultRequest":{"cpu":"1"},"maxLimitRequestRatio":{"cpu":"2"}}]}`},
	"scheduling.k8s.io/v1/PriorityClass": {priorityclass.Strategy, `"value":1`},
	"flowcontrol.apiserver.k8s.io/v1/FlowSchema": {flowschema.Strategy, `"spec":{"matchingPrecedence":1000,"priorityLevelConfiguration":{"name":"a"},` +
		`"distinguisherMethod":{"type":"ByUser"}}`},
	"flowcontrol.apiserver.k8s.io/v1/PriorityLevelConfiguration": {prioritylevelconfiguration.Strategy, `"spec":{"type":"Limited","limited":` +
		`{"nominalConcurrencyShares":5,"lendablePercent":50,"borrowingLimitPercent":50,"limitResponse":{"type":"Queue","queuing":` +
		`{"queues":64,"handSize":8,"queueLengthLimit":50}}}}`},
	"v1/Service": {service.Strategy, `"spec":{"selector":{"a":"b"},"ports":[{"port":80,"targetPort":80}],"sessionAffinity":"ClientIP"}`},
	"v1/Node": {node.Strategy, `"spec":{"podCIDR":"10.0.0.0/24","taints":[{"key":"a","effect":"NoSchedule"}]},"status":{"capacity":{"cpu":"1"},` +
		`"allocatable":{"cpu":"1"}}`},
	"v1/PersistentVolume": {persistentvolume.Strategy, `"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/a"}}`},
	"v1/PersistentVolumeClaim": {persistentvolumeclaim.Strategy, `"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},` +
		`"volumeName":"a"}`},
	"coordination.k8s.io/v1/Lease":      {lease.Strategy, `"spec":{"holderIdentity":"a","leaseDurationSeconds":10}`},
	"discovery.k8s.io/v1/EndpointSlice": {endpointslice.Strategy, `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"port":80}]`},
	"networking.k8s.io/v1/Ingress":      {ingress.Strategy, `"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}`},
	"networking.k8s.io/v1/NetworkPolicy": {networkpolicy.Strategy, `"spec":{"podSelector":{},"ingress":[{"ports":[{"port":80,"endPort":90}],` +
		`"from":[{"podSelector":{}}]}]}`},
	"node.k8s.io/v1/RuntimeClass":          {runtimeclass.Strategy, `"handler":"a","overhead":{"podFixed":{"cpu":"1"}}`},
	"storage.k8s.io/v1/CSIStorageCapacity": {csistoragecapacity.Strategy, `"storageClassName":"a","capacity":"1Gi","maximumVolumeSize":"1Mi"`},
}

var validatedNames = sync.OnceValue(func() []string { return slices.Sorted(maps.Keys(validatedKinds)) })

// validationInput is a valid object with changed fields.
type validationInput struct {
	Kind    string   `json:"kind"`
	Changes []change `json:"changes"`
	// Converted is true if the object is converted from its unstructured form, as after a strategic merge patch; else it
	// is decoded from JSON, as after POST.
	Converted bool `json:"converted"`
}

// change is a field and its JSON text.
type change struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

func generateValidation(r *random) validationInput {
	kind := pick(r, validatedNames())
	input := validationInput{Kind: kind, Converted: r.chance(50)}
	numeric := builtinsByText()[kind].numeric()
	present := presentFields(kind, numeric)
	for range pick(r, []int{1, 1, 1, 2, 3}) {
		fields := numeric
		if len(present) > 0 && r.chance(60) {
			fields = present
		}
		f := pick(r, fields)
		value := r.plausible(f.kind, "")
		if r.chance(30) || f.kind == "int32" && input.Converted {
			value = r.number()
		}
		input.Changes = append(input.Changes, change{f.path, value})
	}
	return input
}

var presentCache sync.Map

// presentFields returns the numeric fields of the specification outside of metadata. They are less than all the fields
// below volumes and ephemeral containers, which are most of a pod's.
func presentFields(kind string, numeric []builtinField) []builtinField {
	if cached, ok := presentCache.Load(kind); ok {
		return cached.([]builtinField)
	}
	fields := slices.DeleteFunc(slices.Clone(numeric), func(f builtinField) bool {
		return strings.Contains(f.path, "metadata") || strings.Contains(f.path, "status") || strings.Contains(f.path, "ephemeral") ||
			strings.Contains(f.path, "initContainers") || strings.Contains(f.path, "volumes") || strings.Count(f.path, ".") > 7
	})
	presentCache.Store(kind, fields)
	return fields
}

// changedObject is the valid object with the changes.
func (input validationInput) changedObject(b *builtin) (map[string]any, error) {
	kind := validatedKinds[input.Kind]
	// rest.BeforeCreate sets a random uid, which the selector of a Job contains.
	metadata := `{"metadata":{"name":"a","uid":"u"`
	if kind.strategy.NamespaceScoped() {
		metadata += `,"namespace":"n"`
	}
	text := b.withType(metadata + "}," + kind.fields + "}")
	object, err := decodeObject([]byte(text))
	if err != nil {
		return nil, err
	}
	for _, c := range input.Changes {
		// An element of the base object has its required fields already.
		text, ok := placed(b.goType, strings.Split(c.Path, "."), c.Value)
		if !ok || !json.Valid([]byte(c.Value)) {
			return nil, errNotAnInput
		}
		addition, err := decodeObject([]byte(text))
		if err != nil {
			return nil, err
		}
		mergeInto(object, addition, strings.Split(c.Path, "."))
	}
	return object, nil
}

// mergeInto sets the value at the path of object to that of addition; elements and maps on the way are kept.
func mergeInto(object, addition map[string]any, path []string) {
	name := path[0]
	// The template for elements of a map is called `key`; the base object's keys are others.
	if _, present := object[name]; len(path) == 1 || !present {
		object[name] = addition[name]
		return
	}
	switch have := object[name].(type) {
	case map[string]any:
		if other, ok := addition[name].(map[string]any); ok {
			mergeInto(have, other, path[1:])
			return
		}
	case []any:
		other, ok := addition[name].([]any)
		if ok && len(have) > 0 && len(path) > 2 {
			first, isMap := have[0].(map[string]any)
			second, otherMap := other[0].(map[string]any)
			if isMap && otherMap {
				mergeInto(first, second, path[2:])
				return
			}
		}
	}
	object[name] = addition[name]
}

// typedVersion returns the typed object, with defaults, in the version of the request.
func (input validationInput) typedVersion(b *builtin) (runtime.Object, error) {
	object, err := input.changedObject(b)
	if err != nil {
		return nil, err
	}
	if input.Converted {
		typed, err := unstructuredToTyped(b, object)
		if err != nil {
			return nil, err
		}
		legacyscheme.Scheme.Default(typed)
		return typed, nil
	}
	typed, err := decode("json", mustEncode(object), b)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(typed)
	return typed, nil
}

// validate follows rest.BeforeCreate without the parts that need a clock or random names.
func (input validationInput) validate() (any, error) {
	b := builtinsByText()[input.Kind]
	kind, ok := validatedKinds[input.Kind]
	if !ok {
		return nil, errNotAnInput
	}
	typed, err := input.typedVersion(b)
	if err != nil {
		return nil, err
	}
	internal, err := legacyscheme.Scheme.ConvertToVersion(typed, b.hub())
	if err != nil {
		return nil, err
	}
	ctx := validationContext(b)
	kind.strategy.PrepareForCreate(ctx, internal)
	errs := kind.strategy.Validate(ctx, internal)
	kind.strategy.Canonicalize(internal)
	warnings := kind.strategy.WarningsOnCreate(ctx, internal)
	answer := map[string]any{"errors": errorTexts(errs), "warnings": warnings}
	stored, err := legacyscheme.Scheme.ConvertToVersion(internal, b.gvk.GroupVersion())
	if err != nil {
		answer["stored"] = err.Error()
		return answer, nil
	}
	answer["stored"], err = withoutClock(stored)
	return answer, err
}

func validationContext(b *builtin) context.Context {
	info := &apirequest.RequestInfo{APIGroup: b.gvk.Group, APIVersion: b.gvk.Version}
	return apirequest.WithRequestInfo(apirequest.WithNamespace(context.Background(), "n"), info)
}

// class is the kind and the field; numbers that only a conversion accepts have the classes of their conversion.
func (input validationInput) class() string {
	converted := []string{}
	for _, c := range input.Changes {
		class := fieldValue{Kind: input.Kind, Path: c.Path, Value: c.Value}.class()
		if input.Converted && strings.HasPrefix(class, "int") && strings.HasSuffix(class, "float beyond int64") {
			converted = append(converted, "converted "+class)
		}
	}
	slices.Sort(converted)
	switch {
	case len(converted) > 0:
		return strings.Join(slices.Compact(converted), ", ")
	case len(input.Changes) == 1:
		return input.Kind + ", " + input.Changes[0].Path
	}
	return input.Kind + ", several changes"
}

func init() {
	define(definition[validationInput]{
		name:     "validation.create",
		about:    "defaults, create strategy and validation of a built-in object with changed numeric fields",
		generate: generateValidation, class: validationInput.class, evaluate: validationInput.validate,
	})
}
