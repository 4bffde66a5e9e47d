// Subjects about horizontal pod autoscalers: proposals of metrics and limits of rates.
package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	_ "unsafe" // for go:linkname

	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
)

func init() {
	defineAutoscalerSubjects()
}

//go:linkname hpaComputeMetric k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).computeReplicasForMetric
func hpaComputeMetric(a *podautoscaler.HorizontalController, ctx context.Context,
	hpa *autoscaling.HorizontalPodAutoscaler,
	spec autoscaling.MetricSpec, specReplicas, statusReplicas int32, selector labels.Selector, status *autoscaling.MetricStatus) (
	int32, string, time.Time, autoscaling.HorizontalPodAutoscalerCondition, error)

//go:linkname hpaScaleUpLimit k8s.io/kubernetes/pkg/controller/podautoscaler.calculateScaleUpLimitWithScalingRules
func hpaScaleUpLimit(current int32, up, down []hpaEvent, rules *autoscaling.HPAScalingRules) int32

//go:linkname hpaScaleDownLimit k8s.io/kubernetes/pkg/controller/podautoscaler.calculateScaleDownLimitWithBehaviors
func hpaScaleDownLimit(current int32, up, down []hpaEvent, rules *autoscaling.HPAScalingRules) int32

//go:linkname hpaConvert k8s.io/kubernetes/pkg/controller/podautoscaler.convertDesiredReplicasWithRules
func hpaConvert(current, desired, low, high int32) (int32, string, string)

// hpaEvent has the layout of pkg/controller/podautoscaler's timestampedScaleEvent.
type hpaEvent struct {
	change    int32
	timestamp time.Time
	outdated  bool
}

// hpaPod is a pod with its metric; a nil usage is a missing metric.
type hpaPod struct {
	Phase   core.PodPhase `json:"phase"`
	Ready   bool          `json:"ready"`
	Request string        `json:"request"`
	Usage   *string       `json:"usage,omitempty"`
}

// hpaInput is one metric of an autoscaler and the state of its target; quantities are texts.
type hpaInput struct {
	// Metric is resource, pods, object, object-average, external or external-average.
	Metric      string   `json:"metric"`
	Resource    string   `json:"resource"`
	Utilization int32    `json:"utilization"`
	Target      string   `json:"target"`
	Value       []string `json:"value"`
	Up          *string  `json:"up,omitempty"`
	Down        *string  `json:"down,omitempty"`
	Current     int32    `json:"current"`
	Status      int32    `json:"status"`
	Pods        []hpaPod `json:"pods"`
}

// metricQuantity returns a positive value as metrics APIs report it: mostly ordinary, sometimes extreme.
func (r *random) metricQuantity() string {
	switch r.below(6) {
	case 0, 1:
		return fmt.Sprintf("%dm", r.between(1, 5000))
	case 2:
		return fmt.Sprintf("%d", r.between(1, 100_000))
	case 3:
		return fmt.Sprintf("%d%s", r.between(1, 900), pick(r, []string{"Ki", "Mi", "Gi", "k", "M", "u", "n"}))
	case 4:
		return fmt.Sprintf("%d.%d", r.between(1, 99), r.below(1000))
	default:
		return fmt.Sprintf("%d%s", uint64(r.int64())>>1|1, pick(r, []string{"", "m", "k"}))
	}
}

func (r *random) hpa() hpaInput {
	in := hpaInput{
		Metric: pick(r, []string{"resource", "resource", "resource-average", "pods", "object", "object-average",
			"external", "external-average"}),
		Resource: pick(r, []string{"cpu", "memory"}), Utilization: int32(r.between(1, 150)), Target: r.metricQuantity(),
		Up: optional(r, fmt.Sprintf("%d.%d", r.below(2), r.below(1000))), Down: optional(r,
			fmt.Sprintf("0.%d", r.below(1000))),
		Current: r.replicas(), Status: r.replicas()}
	if r.chance(10) {
		in.Utilization = max(1, r.replicas())
	}
	for range r.between(1, 3) {
		in.Value = append(in.Value, r.metricQuantity())
	}
	for range r.between(0, 8) {
		pod := hpaPod{Phase: core.PodRunning, Ready: r.chance(85), Request: r.metricQuantity(),
			Usage: ptrTo(r.metricQuantity())}
		if r.chance(15) {
			pod.Usage = nil
		}
		if r.chance(10) {
			pod.Phase = pick(r, []core.PodPhase{core.PodPending, core.PodFailed})
		}
		in.Pods = append(in.Pods, pod)
	}
	return in
}

func ptrTo[T any](value T) *T { return &value }

// hpaMetrics serves the metrics of one input.
type hpaMetrics struct {
	pods   metricsclient.PodMetricsInfo
	values []int64
}

func (m hpaMetrics) GetResourceMetric(context.Context, core.ResourceName, string, labels.Selector,
	string) (metricsclient.PodMetricsInfo, time.Time, error) {
	return m.pods, controllerTime, nil
}

func (m hpaMetrics) GetRawMetric(string, string, labels.Selector, labels.Selector) (metricsclient.PodMetricsInfo,
	time.Time, error) {
	return m.pods, controllerTime, nil
}

func (m hpaMetrics) GetObjectMetric(string, string, *autoscaling.CrossVersionObjectReference, labels.Selector) (int64,
	time.Time, error) {
	return m.values[0], controllerTime, nil
}

func (m hpaMetrics) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	return m.values, controllerTime, nil
}

// podList is a lister of the same pods for all namespaces and selectors.
type podList []*core.Pod

func (l podList) List(labels.Selector) ([]*core.Pod, error)  { return l, nil }
func (l podList) Pods(string) corelisters.PodNamespaceLister { return l }
func (l podList) Get(string) (*core.Pod, error)              { return l[0], nil }

// milli returns the milli value of a quantity, as metrics clients compute it.
func milli(text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, errNotAnInput
	}
	return q.MilliValue(), nil
}

// state returns the pods and metrics of the input.
func (in hpaInput) state() (podList, hpaMetrics, error) {
	pods, metrics := podList{}, hpaMetrics{pods: metricsclient.PodMetricsInfo{}}
	if len(in.Value) == 0 {
		return nil, metrics, errNotAnInput
	}
	for i, p := range in.Pods {
		// A pod with an unparsable or negative request does not pass validation.
		if _, err := milli(p.Request); err != nil {
			return nil, metrics, err
		}
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("pod-", i)},
			Status: core.PodStatus{Phase: p.Phase}}
		pod.Spec.Containers = []core.Container{{Name: "c", Resources: core.ResourceRequirements{
			Requests: core.ResourceList{core.ResourceName(in.Resource): resource.MustParse(p.Request)}}}}
		start := meta.NewTime(controllerTime.Add(-time.Hour))
		pod.Status.StartTime = &start
		status := core.ConditionTrue
		if !p.Ready {
			status = core.ConditionFalse
		}
		pod.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: status, LastTransitionTime: start}}
		pods = append(pods, pod)
		if p.Usage != nil {
			value, err := milli(*p.Usage)
			if err != nil {
				return nil, metrics, err
			}
			metrics.pods[pod.Name] = metricsclient.PodMetric{Timestamp: controllerTime, Window: time.Minute,
				Value: value}
		}
	}
	for _, text := range in.Value {
		value, err := milli(text)
		if err != nil {
			return nil, metrics, err
		}
		metrics.values = append(metrics.values, value)
	}
	return pods, metrics, nil
}

// spec returns the metric of the autoscaler.
func (in hpaInput) spec() (autoscaling.MetricSpec, error) {
	target, err := resource.ParseQuantity(in.Target)
	// Validation requires positive targets.
	if err != nil || target.Sign() <= 0 || in.Utilization < 1 {
		return autoscaling.MetricSpec{}, errNotAnInput
	}
	value := autoscaling.MetricTarget{Type: autoscaling.ValueMetricType, Value: &target}
	average := autoscaling.MetricTarget{Type: autoscaling.AverageValueMetricType, AverageValue: &target}
	utilization := autoscaling.MetricTarget{Type: autoscaling.UtilizationMetricType,
		AverageUtilization: &in.Utilization}
	name := autoscaling.MetricIdentifier{Name: "m", Selector: &meta.LabelSelector{}}
	switch in.Metric {
	case "resource":
		return autoscaling.MetricSpec{Type: autoscaling.ResourceMetricSourceType,
			Resource: &autoscaling.ResourceMetricSource{Name: core.ResourceName(in.Resource), Target: utilization}}, nil
	case "resource-average":
		return autoscaling.MetricSpec{Type: autoscaling.ResourceMetricSourceType,
			Resource: &autoscaling.ResourceMetricSource{Name: core.ResourceName(in.Resource), Target: average}}, nil
	case "pods":
		return autoscaling.MetricSpec{Type: autoscaling.PodsMetricSourceType,
			Pods: &autoscaling.PodsMetricSource{Metric: name, Target: average}}, nil
	case "object":
		return autoscaling.MetricSpec{Type: autoscaling.ObjectMetricSourceType,
			Object: &autoscaling.ObjectMetricSource{Metric: name, Target: value}}, nil
	case "object-average":
		return autoscaling.MetricSpec{Type: autoscaling.ObjectMetricSourceType,
			Object: &autoscaling.ObjectMetricSource{Metric: name, Target: average}}, nil
	case "external":
		return autoscaling.MetricSpec{Type: autoscaling.ExternalMetricSourceType,
			External: &autoscaling.ExternalMetricSource{Metric: name, Target: value}}, nil
	case "external-average":
		return autoscaling.MetricSpec{Type: autoscaling.ExternalMetricSourceType,
			External: &autoscaling.ExternalMetricSource{Metric: name, Target: average}}, nil
	}
	return autoscaling.MetricSpec{}, errNotAnInput
}

// behavior returns the autoscaler's tolerances.
func (in hpaInput) behavior() (*autoscaling.HorizontalPodAutoscalerBehavior, error) {
	behavior := &autoscaling.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscaling.HPAScalingRules{},
		ScaleDown: &autoscaling.HPAScalingRules{}}
	for rules, text := range map[*autoscaling.HPAScalingRules]*string{behavior.ScaleUp: in.Up,
		behavior.ScaleDown: in.Down} {
		if text == nil {
			continue
		}
		tolerance, err := resource.ParseQuantity(*text)
		// Validation refuses a negative tolerance.
		if err != nil || tolerance.Sign() < 0 {
			return nil, errNotAnInput
		}
		rules.Tolerance = &tolerance
	}
	return behavior, nil
}

func evaluateHPA(in hpaInput) (any, error) {
	pods, metrics, err := in.state()
	if err != nil {
		return nil, err
	}
	spec, err := in.spec()
	if err != nil {
		return nil, err
	}
	behavior, err := in.behavior()
	if err != nil {
		return nil, err
	}
	autoscaler := &podautoscaler.HorizontalController{}
	setField(autoscaler, "tolerance", 0.1)
	setField(autoscaler, "replicaCalc", podautoscaler.NewReplicaCalculator(metrics, pods, 5*time.Minute,
		30*time.Second))
	setField(autoscaler, "eventRecorder", &record.FakeRecorder{})
	setField(autoscaler, "monitor", hpaMonitor)
	hpa := &autoscaling.HorizontalPodAutoscaler{ObjectMeta: meta.ObjectMeta{Name: "hpa", Namespace: "default"},
		Spec: autoscaling.HorizontalPodAutoscalerSpec{Behavior: behavior}}
	status := autoscaling.MetricStatus{}
	replicas, name, _, condition, err := hpaComputeMetric(autoscaler, context.Background(), hpa, spec, in.Current,
		in.Status, labels.Everything(), &status)
	return map[string]any{"replicas": replicas, "name": name, "condition": condition.Message, "status": status,
		"error": fmt.Sprint(err)}, nil
}

var hpaMonitor = monitor.New()

// sumMilli adds the milli values of quantities; it is false if one of them or a sum does not fit into int64.
func sumMilli(texts []string) (int64, bool) {
	sum, fits := int64(0), true
	for _, text := range texts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			continue
		}
		value := q.MilliValue()
		fits = fits && q.CmpInt64(resource.MaxMilliValue/10) < 0 && sum+value >= sum
		sum += value
	}
	return sum, fits
}

// hpaClass separates the sources, and results that do not fit into int64 or int32, whose conversion from a float Go
// leaves open.
func hpaClass(in hpaInput) string {
	usages, requests := in.Value, []string{}
	if strings.HasPrefix(in.Metric, "resource") || in.Metric == "pods" {
		usages = nil
		for _, pod := range in.Pods {
			requests = append(requests, pod.Request)
			if pod.Usage != nil {
				usages = append(usages, *pod.Usage)
			}
		}
	}
	usage, fits := sumMilli(usages)
	target, _ := sumMilli([]string{in.Target})
	if in.Metric == "resource" {
		total, requestsFit := sumMilli(requests)
		// The utilization is a percentage; a request that is small next to another makes it larger than the sums show.
		target, fits = max(total, 1)/100*int64(in.Utilization)/100, fits && requestsFit
	}
	switch {
	case (in.Metric == "object-average" || in.Metric == "external-average") && in.Status == 0:
		return in.Metric + ", no replicas"
	case !fits:
		return in.Metric + ", sum beyond int64"
	case usage/max(target, 1) > math.MaxInt32/100:
		return in.Metric + ", ratio beyond int32"
	}
	return in.Metric + ", ordinary ratio"
}

type hpaPolicy struct {
	Percent bool  `json:"percent"`
	Value   int32 `json:"value"`
	Period  int32 `json:"period"`
}

// hpaRateInput has the policies of an autoscaler and the changes of replicas inside their period.
type hpaRateInput struct {
	Select   string      `json:"select"`
	Policies []hpaPolicy `json:"policies"`
	Added    []int32     `json:"added"`
	Removed  []int32     `json:"removed"`
	Current  int32       `json:"current"`
	Desired  int32       `json:"desired"`
	Min      int32       `json:"min"`
	Max      int32       `json:"max"`
}

func (r *random) hpaRate() hpaRateInput {
	in := hpaRateInput{Select: pick(r, []string{"Max", "Min", "Disabled"}), Current: r.replicas(),
		Desired: r.replicas(),
		Min:     r.replicas(), Max: r.replicas()}
	for range r.between(1, 3) {
		// Validation requires a positive value and a period of 1 to 1800 s.
		in.Policies = append(in.Policies, hpaPolicy{r.chance(60), max(1, r.replicas()), int32(r.between(1, 1800))})
	}
	for range r.below(3) {
		in.Added = append(in.Added, r.replicas())
		in.Removed = append(in.Removed, r.replicas())
	}
	return in
}

func hpaEvents(changes []int32) []hpaEvent {
	events := []hpaEvent{}
	for _, change := range changes {
		// Far in the future, so that the event is in every period.
		events = append(events, hpaEvent{change: change, timestamp: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)})
	}
	return events
}

func evaluateHPARate(in hpaRateInput) (any, error) {
	selection := autoscaling.ScalingPolicySelect(in.Select)
	rules := &autoscaling.HPAScalingRules{SelectPolicy: &selection}
	for _, p := range in.Policies {
		kind := autoscaling.PodsScalingPolicy
		if p.Percent {
			kind = autoscaling.PercentScalingPolicy
		}
		rules.Policies = append(rules.Policies, autoscaling.HPAScalingPolicy{Type: kind, Value: p.Value,
			PeriodSeconds: p.Period})
	}
	added, removed := hpaEvents(in.Added), hpaEvents(in.Removed)
	converted, reason, _ := hpaConvert(in.Current, in.Desired, in.Min, in.Max)
	return map[string]any{"up": hpaScaleUpLimit(in.Current, added, removed, rules),
		"down": hpaScaleDownLimit(in.Current, added, removed, rules), "converted": converted, "reason": reason}, nil
}

// hpaRateClass separates results that do not fit into int32, whose conversion from a float Go leaves open.
func hpaRateClass(in hpaRateInput) string {
	start := in.Current
	for _, change := range in.Added {
		start -= change
	}
	for _, change := range in.Removed {
		start += change
	}
	for _, p := range in.Policies {
		for _, percent := range []int64{100 + int64(p.Value), 100 - int64(p.Value)} {
			if limit := int64(start) * percent / 100; p.Percent && (limit >= math.MaxInt32 || limit <= math.MinInt32) {
				return "percentage beyond int32"
			}
		}
	}
	if in.Current > math.MaxInt32/2 {
		return "default limit beyond int32"
	}
	return "ordinary"
}

func defineAutoscalerSubjects() {
	define(definition[hpaInput]{
		name:     "hpa.replicas",
		about:    "pkg/controller/podautoscaler computeReplicasForMetric with its replica calculator: proposal and status of one metric",
		generate: (*random).hpa,
		evaluate: evaluateHPA,
		class:    hpaClass,
	})
	define(definition[hpaRateInput]{
		name:     "hpa.rate",
		about:    "pkg/controller/podautoscaler: limits of scale up and down by policies and by the default rule",
		generate: (*random).hpaRate,
		evaluate: evaluateHPARate,
		class:    hpaRateClass,
	})
}
