// Subjects about arithmetic, hashes and decisions of kube-controller-manager's controllers.
package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/robfig/cron/v3"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/topologycache"
	endpointutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// Packages whose unexported functions are linked below.
var (
	_ cronjob.ControllerV2
	_ daemon.DaemonSetsController
	_ job.Controller
	_ statefulset.StatefulSetController
	_ ttlafterfinished.Controller
)

// setField sets an unexported field: constructors of controllers start goroutines or need a client.
func setField(object any, name string, value any) {
	field := reflect.ValueOf(object).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value).Convert(field.Type()))
}

// controllerTime is the time that controllers see as now.
var controllerTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func init() {
	// klog writes errors to stderr even after LogToStderr(false), which slows subjects with refused inputs.
	klog.SetLogger(logr.Discard())
	defineDeploymentSubjects()
	defineRevisionSubjects()
	defineJobSubjects()
	defineCronJobSubjects()
	defineAutoscalerSubjects()
	defineAvailabilitySubjects()
	defineNetworkSubjects()
}

// ---- Deployments and ReplicaSets ----

// percentOrInt returns a value that validation of rollouts and disruption budgets accepts: a count or a percentage.
func (r *random) percentOrInt() intstr.IntOrString {
	switch r.below(8) {
	case 0, 1:
		return intstr.FromInt32(int32(r.between(0, 50)))
	case 2:
		return intstr.FromInt32(r.int32() & math.MaxInt32)
	case 3:
		return intstr.FromString(fmt.Sprintf("%d%%", uint64(r.int64())>>1))
	default:
		return intstr.FromString(fmt.Sprintf("%d%%", r.between(0, 130)))
	}
}

// replicas returns a number of replicas that validation accepts.
func (r *random) replicas() int32 {
	if r.chance(80) {
		return int32(r.between(0, 300))
	}
	return r.int32() & math.MaxInt32
}

// percentClass separates percentages whose result exceeds a type from ordinary ones.
func percentClass(values ...intstr.IntOrString) string {
	for _, value := range values {
		if value.Type == intstr.String && len(value.StrVal) > 11 {
			return "percentage beyond int32"
		}
	}
	return "ordinary percentages"
}

type fencepostsInput struct {
	MaxSurge       intstr.IntOrString `json:"maxSurge"`
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable"`
	Replicas       int32              `json:"replicas"`
}

type scaleInput struct {
	MaxSurge       intstr.IntOrString `json:"maxSurge"`
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable"`
	Replicas       int32              `json:"replicas"`
	StatusReplicas int32              `json:"statusReplicas"`
	// MaxBefore is the annotation deployment.kubernetes.io/max-replicas of the ReplicaSet.
	MaxBefore string `json:"maxBefore"`
	// ReplicaSet and Other are sizes of the scaled ReplicaSet and of all others.
	ReplicaSet int32   `json:"replicaSet"`
	Other      []int32 `json:"other"`
	ToAdd      int32   `json:"toAdd"`
	Added      int32   `json:"added"`
}

func (r *random) scale() scaleInput {
	in := scaleInput{MaxSurge: r.percentOrInt(), MaxUnavailable: r.percentOrInt(), Replicas: r.replicas(),
		StatusReplicas: r.replicas(), ReplicaSet: r.replicas(), ToAdd: int32(r.between(-100, 300)),
		Added: int32(r.between(-100, 100))}
	in.MaxBefore = pick(r, []string{fmt.Sprint(r.replicas()), fmt.Sprint(in.Replicas), "", "0", "-1", "2147483648", "1e3"})
	for range r.below(4) {
		in.Other = append(in.Other, r.replicas())
	}
	return in
}

func (in scaleInput) objects() (apps.Deployment, *apps.ReplicaSet, []*apps.ReplicaSet) {
	deployment := apps.Deployment{Spec: apps.DeploymentSpec{Replicas: &in.Replicas, Strategy: apps.DeploymentStrategy{
		Type:          apps.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &in.MaxSurge, MaxUnavailable: &in.MaxUnavailable},
	}}, Status: apps.DeploymentStatus{Replicas: in.StatusReplicas}}
	set := &apps.ReplicaSet{Spec: apps.ReplicaSetSpec{Replicas: &in.ReplicaSet}}
	if in.MaxBefore != "" {
		set.Annotations = map[string]string{deploymentutil.MaxReplicasAnnotation: in.MaxBefore}
	}
	all := []*apps.ReplicaSet{set}
	for _, size := range in.Other {
		all = append(all, &apps.ReplicaSet{Spec: apps.ReplicaSetSpec{Replicas: &size}})
	}
	return deployment, set, all
}

//go:linkname controllerLogRank k8s.io/kubernetes/pkg/controller.logarithmicRankDiff
func controllerLogRank(t1, t2, now meta.Time) int64

func defineDeploymentSubjects() {
	define(definition[fencepostsInput]{
		name:  "deployment.fenceposts",
		about: "pkg/controller/deployment/util ResolveFenceposts: pods above and below the desired number in a rollout",
		generate: func(r *random) fencepostsInput {
			return fencepostsInput{r.percentOrInt(), r.percentOrInt(), r.replicas()}
		},
		evaluate: func(in fencepostsInput) (any, error) {
			surge, unavailable, err := deploymentutil.ResolveFenceposts(&in.MaxSurge, &in.MaxUnavailable, in.Replicas)
			return []int32{surge, unavailable}, err
		},
		class: func(in fencepostsInput) string { return percentClass(in.MaxSurge, in.MaxUnavailable) },
	})
	define(definition[scaleInput]{
		name:     "deployment.scale",
		about:    "pkg/controller/deployment/util GetReplicaSetProportion, NewRSNewReplicas, MaxUnavailable, MinAvailable, MaxSurge",
		generate: (*random).scale,
		evaluate: func(in scaleInput) (any, error) {
			deployment, set, all := in.objects()
			next, err := deploymentutil.NewRSNewReplicas(&deployment, all, set)
			return map[string]any{
				"proportion": deploymentutil.GetReplicaSetProportion(klog.Background(), set, deployment, in.ToAdd, in.Added),
				"next":       next, "error": fmt.Sprint(err),
				"unavailable": deploymentutil.MaxUnavailable(deployment), "available": deploymentutil.MinAvailable(&deployment),
				"surge": deploymentutil.MaxSurge(deployment),
			}, nil
		},
		class: func(in scaleInput) string { return percentClass(in.MaxSurge, in.MaxUnavailable) },
	})
	define(definition[[3]int64]{
		name:  "replicaset.rank",
		about: "pkg/controller logarithmicRankDiff: the order in which a ReplicaSet deletes pods, from ages in nanoseconds",
		generate: func(r *random) [3]int64 {
			// Ages of pods in seconds or nanoseconds, and ages around powers of two, where the logarithm is an integer.
			age := func() int64 {
				if r.chance(50) {
					return int64(r.between(0, 10_000_000)) * int64(time.Second)
				}
				return int64(1)<<r.below(62) + int64(r.between(-3, 3))
			}
			return [3]int64{age(), age(), int64(r.below(1_000_000_000))}
		},
		evaluate: func(in [3]int64) (any, error) {
			now := meta.NewTime(controllerTime.Add(time.Duration(in[2])))
			return controllerLogRank(meta.NewTime(now.Add(-time.Duration(in[0]))), meta.NewTime(now.Add(-time.Duration(in[1]))), now), nil
		},
	})
}

// ---- Hashes and revisions ----

//go:linkname statefulSetRevision k8s.io/kubernetes/pkg/controller/statefulset.newRevision
func statefulSetRevision(set *apps.StatefulSet, revision int64, collisions *int32) (*apps.ControllerRevision, error)

//go:linkname daemonSetPatch k8s.io/kubernetes/pkg/controller/daemon.getPatch
func daemonSetPatch(set *apps.DaemonSet) ([]byte, error)

type templateInput struct {
	Name       string               `json:"name"`
	Template   core.PodTemplateSpec `json:"template"`
	Collisions *int32               `json:"collisions,omitempty"`
	Revision   int64                `json:"revision"`
}

// optional returns nil or a pointer to the value.
func optional[T any](r *random, value T) *T {
	if r.chance(50) {
		return nil
	}
	return &value
}

// validQuantity returns the text of a quantity that parses.
func (r *random) validQuantity() resource.Quantity {
	if q, err := resource.ParseQuantity(r.quantity()); err == nil {
		return q
	}
	return *resource.NewMilliQuantity(int64(r.below(100_000)), resource.DecimalSI)
}

func (r *random) resourceList() core.ResourceList {
	list := core.ResourceList{}
	for range r.below(3) {
		list[pick(r, []core.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.org/gpu"})] = r.validQuantity()
	}
	return list
}

func (r *random) probe() *core.Probe {
	return optional(r, core.Probe{InitialDelaySeconds: r.int32(), TimeoutSeconds: r.int32(), PeriodSeconds: r.int32(),
		SuccessThreshold: r.int32(), FailureThreshold: r.int32(), TerminationGracePeriodSeconds: optional(r, r.int64()),
		ProbeHandler: core.ProbeHandler{TCPSocket: &core.TCPSocketAction{Port: r.percentOrInt(), Host: r.name()}}})
}

// decomposed has letters that Unicode normalization changes.
var decomposed = []string{"", "", "", "e\u0301", "\u212b", "\u1e9b\u0323"}

func (r *random) container() core.Container {
	c := core.Container{Name: r.name(), Image: pick(r, []string{r.name(), r.text(), "registry.k8s.io/pause:3.10"}),
		Resources:     core.ResourceRequirements{Limits: r.resourceList(), Requests: r.resourceList()},
		LivenessProbe: r.probe(), ReadinessProbe: r.probe()}
	for range r.below(3) {
		c.Env = append(c.Env, core.EnvVar{Name: r.name(), Value: r.text() + pick(r, decomposed)})
		c.Ports = append(c.Ports, core.ContainerPort{ContainerPort: r.int32(), HostPort: r.int32(), Protocol: "TCP"})
		c.Args = append(c.Args, r.text())
	}
	if r.chance(30) {
		c.SecurityContext = &core.SecurityContext{RunAsUser: optional(r, r.int64()), Privileged: optional(r, r.chance(50))}
	}
	return c
}

func (r *random) template() core.PodTemplateSpec {
	t := core.PodTemplateSpec{ObjectMeta: meta.ObjectMeta{Labels: r.stringMap(3), Annotations: r.stringMap(3)}}
	t.Spec.TerminationGracePeriodSeconds = optional(r, r.int64())
	t.Spec.ActiveDeadlineSeconds = optional(r, r.int64())
	t.Spec.Priority = optional(r, r.int32())
	t.Spec.NodeSelector = r.stringMap(2)
	for range r.between(1, 2) {
		t.Spec.Containers = append(t.Spec.Containers, r.container())
	}
	for range r.below(3) {
		t.Spec.Tolerations = append(t.Spec.Tolerations, core.Toleration{Key: r.name(), TolerationSeconds: optional(r, r.int64())})
		t.Spec.Volumes = append(t.Spec.Volumes, core.Volume{Name: r.name(), VolumeSource: core.VolumeSource{
			EmptyDir: &core.EmptyDirVolumeSource{SizeLimit: optional(r, r.validQuantity())}}})
	}
	return t
}

func defineRevisionSubjects() {
	generate := func(r *random) templateInput {
		return templateInput{Name: r.name(), Template: r.template(), Collisions: optional(r, r.int32()), Revision: r.int64()}
	}
	define(definition[templateInput]{
		name:     "hash.pod-template",
		about:    "pkg/controller ComputeHash: the label pod-template-hash and the name of a ReplicaSet",
		generate: generate,
		evaluate: func(in templateInput) (any, error) {
			return controller.ComputeHash(&in.Template, in.Collisions), nil
		},
	})
	define(definition[templateInput]{
		name:     "hash.controller-revision",
		about:    "pkg/controller/statefulset newRevision, pkg/controller/daemon getPatch, pkg/controller/history names and hashes",
		generate: generate,
		evaluate: func(in templateInput) (any, error) {
			set := &apps.StatefulSet{ObjectMeta: meta.ObjectMeta{Name: in.Name, Namespace: "default", UID: "u"},
				Spec: apps.StatefulSetSpec{Template: in.Template}}
			revision, err := statefulSetRevision(set, in.Revision, in.Collisions)
			if err != nil {
				return nil, err
			}
			patch, err := daemonSetPatch(&apps.DaemonSet{Spec: apps.DaemonSetSpec{Template: in.Template}})
			if err != nil {
				return nil, err
			}
			daemon := &apps.ControllerRevision{}
			daemon.Data.Raw = patch
			return map[string]any{"stateful": revision.Name, "daemon": history.HashControllerRevision(daemon, in.Collisions),
				"data": string(revision.Data.Raw)}, nil
		},
	})
}

// ---- Jobs ----

// jobInterval has the layout of pkg/controller/job's interval.
type jobInterval struct{ First, Last int }

//go:linkname jobParseIndexes k8s.io/kubernetes/pkg/controller/job.parseIndexesFromString
func jobParseIndexes(logger klog.Logger, text string, completions int) []jobInterval

//go:linkname jobIntervalsText k8s.io/kubernetes/pkg/controller/job.orderedIntervals.String
func jobIntervalsText(intervals []jobInterval) string

//go:linkname jobIntervalsTotal k8s.io/kubernetes/pkg/controller/job.orderedIntervals.total
func jobIntervalsTotal(intervals []jobInterval) int

//go:linkname jobMatchSuccess k8s.io/kubernetes/pkg/controller/job.matchSuccessPolicy
func jobMatchSuccess(logger klog.Logger, policy *batch.SuccessPolicy, completions int32, succeeded []jobInterval) (string, bool)

//go:linkname jobNamePrefix k8s.io/kubernetes/pkg/controller/job.podGenerateNameWithIndex
func jobNamePrefix(name string, index int) string

//go:linkname jobRemaining k8s.io/kubernetes/pkg/controller/job.getRemainingTimeForFailuresCount
func jobRemaining(clock clock.WithTicker, initial, limit time.Duration, failures int32, last *time.Time) time.Duration

//go:linkname jobPastBackoff k8s.io/kubernetes/pkg/controller/job.pastBackoffLimitOnFailure
func jobPastBackoff(job *batch.Job, pods []*core.Pod) bool

//go:linkname jobTimeLeft k8s.io/kubernetes/pkg/controller/ttlafterfinished.timeLeft
func jobTimeLeft(logger klog.Logger, job *batch.Job, since *time.Time) (*time.Duration, *time.Time, error)

type indexesInput struct {
	Completed    string  `json:"completed"`
	Rule         *string `json:"rule,omitempty"`
	Count        *int32  `json:"count,omitempty"`
	Completions  int32   `json:"completions"`
	Index        int32   `json:"index"`
	Name         string  `json:"name"`
	RestartCount []int32 `json:"restartCount"`
	BackoffLimit int32   `json:"backoffLimit"`
}

// indexes returns intervals as in .status.completedIndexes, mostly in order.
func (r *random) indexes() string {
	parts, next := []string{}, 0
	for range r.below(6) {
		first := next + r.below(5)
		last := first + r.below(4)
		next = last + 1
		switch {
		case r.chance(5):
			parts = append(parts, fmt.Sprint(r.int64()))
		case first == last:
			parts = append(parts, fmt.Sprint(first))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", first, last))
		}
	}
	return strings.Join(parts, ",")
}

type backoffInput struct {
	Failures int32 `json:"failures"`
	// Initial, Limit and Elapsed are nanoseconds.
	Initial int64 `json:"initial"`
	Limit   int64 `json:"limit"`
	Elapsed int64 `json:"elapsed"`
	TTL     int32 `json:"ttl"`
	// Finished is in seconds since 1970.
	Finished int64 `json:"finished"`
}

func defineJobSubjects() {
	define(definition[indexesInput]{
		name:  "job.indexes",
		about: "pkg/controller/job: intervals of indexes, success policy, generated pod names, restarts over the backoff limit",
		generate: func(r *random) indexesInput {
			in := indexesInput{Completed: r.indexes(), Rule: optional(r, r.indexes()), Count: optional(r, r.replicas()),
				Completions: r.replicas(), Index: r.replicas(), Name: r.name() + strings.Repeat("x", r.below(60)), BackoffLimit: r.replicas()}
			for range r.below(4) {
				in.RestartCount = append(in.RestartCount, r.replicas())
			}
			return in
		},
		evaluate: func(in indexesInput) (any, error) {
			logger := klog.Background()
			succeeded := jobParseIndexes(logger, in.Completed, int(in.Completions))
			success := &batch.SuccessPolicy{Rules: []batch.SuccessPolicyRule{{SucceededIndexes: in.Rule, SucceededCount: in.Count}}}
			message, matched := jobMatchSuccess(logger, success, in.Completions, succeeded)
			owner := &batch.Job{Spec: batch.JobSpec{BackoffLimit: &in.BackoffLimit}}
			owner.Spec.Template.Spec.RestartPolicy = core.RestartPolicyOnFailure
			pod := &core.Pod{Status: core.PodStatus{Phase: core.PodRunning}}
			for _, count := range in.RestartCount {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, core.ContainerStatus{RestartCount: count})
			}
			return map[string]any{"intervals": jobIntervalsText(succeeded), "total": jobIntervalsTotal(succeeded),
				"message": message, "matched": matched, "prefix": jobNamePrefix(in.Name, int(in.Index)),
				"past": jobPastBackoff(owner, []*core.Pod{pod})}, nil
		},
	})
	define(definition[backoffInput]{
		name:  "job.backoff",
		about: "pkg/controller/job getRemainingTimeForFailuresCount and pkg/controller/ttlafterfinished timeLeft",
		generate: func(r *random) backoffInput {
			return backoffInput{Failures: r.replicas(), Initial: int64(r.between(1, 60)) * int64(time.Second),
				Limit: int64(r.between(1, 3600)) * int64(time.Second), Elapsed: int64(r.below(1 << 50)), TTL: r.replicas(),
				Finished: int64(r.between(-1<<35, 1<<36))}
		},
		evaluate: func(in backoffInput) (any, error) {
			last := controllerTime.Add(-time.Duration(in.Elapsed))
			wait := jobRemaining(testclock.NewFakeClock(controllerTime), time.Duration(in.Initial), time.Duration(in.Limit), in.Failures, &last)
			finished := &batch.Job{Spec: batch.JobSpec{TTLSecondsAfterFinished: &in.TTL}}
			finished.Status.Conditions = []batch.JobCondition{{Type: batch.JobComplete, Status: core.ConditionTrue,
				LastTransitionTime: meta.Unix(in.Finished, 0)}}
			left, expires, err := jobTimeLeft(klog.Background(), finished, &controllerTime)
			if err != nil {
				return nil, err
			}
			return map[string]any{"wait": wait, "left": left, "expires": expires.Unix()}, nil
		},
	})
}

// ---- CronJobs ----

//go:linkname cronMostRecent k8s.io/kubernetes/pkg/controller/cronjob.mostRecentScheduleTime
func cronMostRecent(owner *batch.CronJob, now time.Time, schedule cron.Schedule, deadline bool) (time.Time, *time.Time, int, error)

//go:linkname cronRequeue k8s.io/kubernetes/pkg/controller/cronjob.nextScheduleTimeDuration
func cronRequeue(owner *batch.CronJob, now time.Time, schedule cron.Schedule) *time.Duration

//go:linkname cronJobName k8s.io/kubernetes/pkg/controller/cronjob.getJobName
func cronJobName(owner *batch.CronJob, scheduled time.Time) string

//go:linkname cronFormat k8s.io/kubernetes/pkg/controller/cronjob.formatSchedule
func cronFormat(owner *batch.CronJob, recorder record.EventRecorder) string

type cronInput struct {
	Schedule string  `json:"schedule"`
	TimeZone *string `json:"timeZone,omitempty"`
	// Created and Last are in seconds before now.
	Created  int64  `json:"created"`
	Last     *int64 `json:"last,omitempty"`
	Deadline *int64 `json:"deadline,omitempty"`
}

func (r *random) cronField(low, high int) string {
	switch r.below(5) {
	case 0, 1:
		return "*"
	case 2:
		return fmt.Sprintf("*/%d", r.between(1, high))
	case 3:
		return fmt.Sprintf("%d-%d", low, r.between(low, high))
	default:
		return fmt.Sprint(r.between(low, high))
	}
}

func (r *random) schedule() string {
	if r.chance(20) {
		return pick(r, []string{"@every 90s", "@every 7m", "@hourly", "@daily", "@monthly", "@every 0.5s", "59 23 31 2 *", "@every 1000000h"})
	}
	return strings.Join([]string{r.cronField(0, 59), r.cronField(0, 23), r.cronField(1, 31), r.cronField(1, 12), r.cronField(0, 6)}, " ")
}

func defineCronJobSubjects() {
	define(definition[cronInput]{
		name:  "cronjob.schedule",
		about: "pkg/controller/cronjob: the last missed time, the number of missed times, the next check, the name of the Job",
		generate: func(r *random) cronInput {
			// A walk over many years of a dense schedule takes long, so ages are at most some months.
			age := func() int64 { return int64(r.below(1 << r.between(1, 23))) }
			return cronInput{Schedule: r.schedule(), TimeZone: optional(r, pick(r, []string{"UTC", "Etc/UTC", "Nowhere/Land"})),
				Created: age(), Last: optional(r, age()), Deadline: optional(r, pick(r, []int64{age(), r.int64() & math.MaxInt64}))}
		},
		evaluate: evaluateCron,
		class: func(in cronInput) string {
			if in.Deadline != nil && *in.Deadline > math.MaxInt64/int64(time.Second) {
				return "deadline beyond a duration"
			}
			return "ordinary deadline"
		},
	})
}

func evaluateCron(in cronInput) (any, error) {
	owner := &batch.CronJob{ObjectMeta: meta.ObjectMeta{Name: "cron",
		CreationTimestamp: meta.NewTime(controllerTime.Add(-time.Duration(in.Created) * time.Second))},
		Spec: batch.CronJobSpec{Schedule: in.Schedule, TimeZone: in.TimeZone, StartingDeadlineSeconds: in.Deadline}}
	if in.Last != nil {
		last := meta.NewTime(controllerTime.Add(-time.Duration(*in.Last) * time.Second))
		owner.Status.LastScheduleTime = &last
	}
	schedule, err := cron.ParseStandard(cronFormat(owner, nil))
	if err != nil {
		return nil, err
	}
	earliest, recent, missed, err := cronMostRecent(owner, controllerTime, schedule, true)
	answer := map[string]any{"earliest": earliest.UnixNano(), "missed": missed, "error": fmt.Sprint(err)}
	if recent != nil {
		answer["recent"], answer["name"] = recent.Unix(), cronJobName(owner, *recent)
	}
	answer["requeue"] = cronRequeue(owner, controllerTime, schedule)
	return answer, nil
}

// ---- Horizontal pod autoscalers ----

//go:linkname hpaComputeMetric k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).computeReplicasForMetric
func hpaComputeMetric(a *podautoscaler.HorizontalController, ctx context.Context, hpa *autoscaling.HorizontalPodAutoscaler,
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
		Metric:   pick(r, []string{"resource", "resource", "resource-average", "pods", "object", "object-average", "external", "external-average"}),
		Resource: pick(r, []string{"cpu", "memory"}), Utilization: int32(r.between(1, 150)), Target: r.metricQuantity(),
		Up: optional(r, fmt.Sprintf("%d.%d", r.below(2), r.below(1000))), Down: optional(r, fmt.Sprintf("0.%d", r.below(1000))),
		Current: r.replicas(), Status: r.replicas()}
	if r.chance(10) {
		in.Utilization = max(1, r.replicas())
	}
	for range r.between(1, 3) {
		in.Value = append(in.Value, r.metricQuantity())
	}
	for range r.between(0, 8) {
		pod := hpaPod{Phase: core.PodRunning, Ready: r.chance(85), Request: r.metricQuantity(), Usage: ptrTo(r.metricQuantity())}
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

func (m hpaMetrics) GetResourceMetric(context.Context, core.ResourceName, string, labels.Selector, string) (metricsclient.PodMetricsInfo, time.Time, error) {
	return m.pods, controllerTime, nil
}

func (m hpaMetrics) GetRawMetric(string, string, labels.Selector, labels.Selector) (metricsclient.PodMetricsInfo, time.Time, error) {
	return m.pods, controllerTime, nil
}

func (m hpaMetrics) GetObjectMetric(string, string, *autoscaling.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
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
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("pod-", i)}, Status: core.PodStatus{Phase: p.Phase}}
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
			metrics.pods[pod.Name] = metricsclient.PodMetric{Timestamp: controllerTime, Window: time.Minute, Value: value}
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
	utilization := autoscaling.MetricTarget{Type: autoscaling.UtilizationMetricType, AverageUtilization: &in.Utilization}
	name := autoscaling.MetricIdentifier{Name: "m", Selector: &meta.LabelSelector{}}
	switch in.Metric {
	case "resource":
		return autoscaling.MetricSpec{Type: autoscaling.ResourceMetricSourceType,
			Resource: &autoscaling.ResourceMetricSource{Name: core.ResourceName(in.Resource), Target: utilization}}, nil
	case "resource-average":
		return autoscaling.MetricSpec{Type: autoscaling.ResourceMetricSourceType,
			Resource: &autoscaling.ResourceMetricSource{Name: core.ResourceName(in.Resource), Target: average}}, nil
	case "pods":
		return autoscaling.MetricSpec{Type: autoscaling.PodsMetricSourceType, Pods: &autoscaling.PodsMetricSource{Metric: name, Target: average}}, nil
	case "object":
		return autoscaling.MetricSpec{Type: autoscaling.ObjectMetricSourceType, Object: &autoscaling.ObjectMetricSource{Metric: name, Target: value}}, nil
	case "object-average":
		return autoscaling.MetricSpec{Type: autoscaling.ObjectMetricSourceType, Object: &autoscaling.ObjectMetricSource{Metric: name, Target: average}}, nil
	case "external":
		return autoscaling.MetricSpec{Type: autoscaling.ExternalMetricSourceType, External: &autoscaling.ExternalMetricSource{Metric: name, Target: value}}, nil
	case "external-average":
		return autoscaling.MetricSpec{Type: autoscaling.ExternalMetricSourceType, External: &autoscaling.ExternalMetricSource{Metric: name, Target: average}}, nil
	}
	return autoscaling.MetricSpec{}, errNotAnInput
}

// behavior returns the autoscaler's tolerances.
func (in hpaInput) behavior() (*autoscaling.HorizontalPodAutoscalerBehavior, error) {
	behavior := &autoscaling.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscaling.HPAScalingRules{}, ScaleDown: &autoscaling.HPAScalingRules{}}
	for rules, text := range map[*autoscaling.HPAScalingRules]*string{behavior.ScaleUp: in.Up, behavior.ScaleDown: in.Down} {
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
	setField(autoscaler, "replicaCalc", podautoscaler.NewReplicaCalculator(metrics, pods, 5*time.Minute, 30*time.Second))
	setField(autoscaler, "eventRecorder", &record.FakeRecorder{})
	setField(autoscaler, "monitor", hpaMonitor)
	hpa := &autoscaling.HorizontalPodAutoscaler{ObjectMeta: meta.ObjectMeta{Name: "hpa", Namespace: "default"},
		Spec: autoscaling.HorizontalPodAutoscalerSpec{Behavior: behavior}}
	status := autoscaling.MetricStatus{}
	replicas, name, _, condition, err := hpaComputeMetric(autoscaler, context.Background(), hpa, spec, in.Current, in.Status, labels.Everything(), &status)
	return map[string]any{"replicas": replicas, "name": name, "condition": condition.Message, "status": status, "error": fmt.Sprint(err)}, nil
}

var hpaMonitor = monitor.New()

// hpaClass separates the sources, and ratios of value and target beyond int32, whose conversion Go leaves open.
func hpaClass(in hpaInput) string {
	target, err := milli(in.Target)
	if err != nil {
		return in.Metric
	}
	largest := int64(0)
	values := append([]string{}, in.Value...)
	if strings.HasPrefix(in.Metric, "resource") || in.Metric == "pods" {
		values = nil
		for _, pod := range in.Pods {
			if pod.Usage != nil {
				values = append(values, *pod.Usage)
			}
		}
	}
	for _, text := range values {
		if value, err := milli(text); err == nil {
			largest = max(largest, value)
		}
	}
	switch {
	case strings.Contains(in.Metric, "average") && !strings.HasPrefix(in.Metric, "resource") && in.Status == 0:
		return in.Metric + ", no replicas"
	case in.Metric == "resource" && largest > math.MaxInt64/100/8:
		return in.Metric + ", sum beyond int64"
	case in.Metric != "resource" && largest/max(target, 1) > math.MaxInt32/16:
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
	in := hpaRateInput{Select: pick(r, []string{"Max", "Min", "Disabled"}), Current: r.replicas(), Desired: r.replicas(),
		Min: r.replicas(), Max: r.replicas()}
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
		rules.Policies = append(rules.Policies, autoscaling.HPAScalingPolicy{Type: kind, Value: p.Value, PeriodSeconds: p.Period})
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

// ---- Disruption budgets, DaemonSets and zones ----

//go:linkname pdbExpected k8s.io/kubernetes/pkg/controller/disruption.(*DisruptionController).getExpectedPodCount
func pdbExpected(dc *disruption.DisruptionController, ctx context.Context, pdb *policy.PodDisruptionBudget, pods []*core.Pod) (int32, int32, []string, error)

type pdbInput struct {
	MinAvailable   *intstr.IntOrString `json:"minAvailable,omitempty"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Owners are the sizes of the StatefulSets of the pods.
	Owners []int32 `json:"owners"`
}

// statefulSets is a lister of StatefulSets whose names are their indexes.
type statefulSets []int32

func (s statefulSets) List(labels.Selector) ([]*apps.StatefulSet, error)          { return nil, nil }
func (s statefulSets) StatefulSets(string) appslisters.StatefulSetNamespaceLister { return s }
func (s statefulSets) GetPodStatefulSets(*core.Pod) ([]*apps.StatefulSet, error)  { return nil, nil }
func (s statefulSets) Get(name string) (*apps.StatefulSet, error) {
	for i := range s {
		if name == fmt.Sprint(i) {
			return &apps.StatefulSet{ObjectMeta: meta.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: apps.StatefulSetSpec{Replicas: &s[i]}}, nil
		}
	}
	return nil, fmt.Errorf("no StatefulSet %s", name)
}

func evaluatePDB(in pdbInput) (any, error) {
	budget := &policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{MinAvailable: in.MinAvailable, MaxUnavailable: in.MaxUnavailable}}
	pods := []*core.Pod{}
	for i := range in.Owners {
		owner := meta.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), Controller: ptrTo(true)}
		pods = append(pods, &core.Pod{ObjectMeta: meta.ObjectMeta{OwnerReferences: []meta.OwnerReference{owner}}})
	}
	dc := &disruption.DisruptionController{}
	setField(dc, "ssLister", statefulSets(in.Owners))
	expected, healthy, _, err := pdbExpected(dc, context.Background(), budget, pods)
	return []int32{expected, healthy}, err
}

// zoneInput has the numbers of ready and other nodes of a zone, and the threshold in thousandths.
type zoneInput struct {
	Ready     int `json:"ready"`
	NotReady  int `json:"notReady"`
	Threshold int `json:"threshold"`
}

func defineAvailabilitySubjects() {
	define(definition[pdbInput]{
		name:  "disruption.expected",
		about: "pkg/controller/disruption getExpectedPodCount: expected pods and desired healthy pods of a PodDisruptionBudget",
		generate: func(r *random) pdbInput {
			in := pdbInput{}
			if value := r.percentOrInt(); r.chance(50) {
				in.MinAvailable = &value
			} else {
				in.MaxUnavailable = &value
			}
			for range r.between(1, 4) {
				in.Owners = append(in.Owners, r.replicas())
			}
			return in
		},
		evaluate: evaluatePDB,
		class: func(in pdbInput) string {
			for _, value := range []*intstr.IntOrString{in.MinAvailable, in.MaxUnavailable} {
				if value != nil {
					return percentClass(*value)
				}
			}
			return ""
		},
	})
	define(definition[fencepostsInput]{
		name:  "daemonset.counts",
		about: "pkg/controller/daemon/util SurgeCount and UnavailableCount",
		generate: func(r *random) fencepostsInput {
			return fencepostsInput{r.percentOrInt(), r.percentOrInt(), r.replicas()}
		},
		evaluate: func(in fencepostsInput) (any, error) {
			set := &apps.DaemonSet{Spec: apps.DaemonSetSpec{UpdateStrategy: apps.DaemonSetUpdateStrategy{Type: apps.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &apps.RollingUpdateDaemonSet{MaxSurge: &in.MaxSurge, MaxUnavailable: &in.MaxUnavailable}}}}
			surge, err := daemonutil.SurgeCount(set, int(in.Replicas))
			unavailable, err2 := daemonutil.UnavailableCount(set, int(in.Replicas))
			return []string{fmt.Sprint(surge, err), fmt.Sprint(unavailable, err2)}, nil
		},
		class: func(in fencepostsInput) string { return percentClass(in.MaxSurge, in.MaxUnavailable) },
	})
	define(definition[zoneInput]{
		name:  "node.zone-state",
		about: "pkg/controller/nodelifecycle ComputeZoneState: float32 ratio of unhealthy nodes",
		generate: func(r *random) zoneInput {
			return zoneInput{r.below(r.between(1, 500)), r.below(r.between(1, 500)), r.between(1, 1000)}
		},
		evaluate: func(in zoneInput) (any, error) {
			if in.Ready < 0 || in.NotReady < 0 || in.Ready+in.NotReady > 100_000 || in.Threshold < 0 {
				return nil, errNotAnInput
			}
			conditions := make([]*core.NodeCondition, in.NotReady)
			ready := &core.NodeCondition{Status: core.ConditionTrue}
			for range in.Ready {
				conditions = append(conditions, ready)
			}
			nodes := &nodelifecycle.Controller{}
			setField(nodes, "unhealthyZoneThreshold", float32(in.Threshold)/1000)
			count, state := nodes.ComputeZoneState(conditions)
			return []any{count, state}, nil
		},
	})
}

// ---- Endpoint slices and CIDRs ----

// zoneAllocation has the layout of k8s.io/endpointslice/topologycache's allocation.
type zoneAllocation struct {
	minimum, maximum int
	desired          float64
}

//go:linkname topologyAllocations k8s.io/endpointslice/topologycache.(*TopologyCache).getAllocations
func topologyAllocations(cache *topologycache.TopologyCache, endpoints int) (map[string]zoneAllocation, *topologycache.EventBuilder)

//go:linkname endpointHash k8s.io/endpointslice/util.hashEndpoint
func endpointHash(endpoint *discovery.Endpoint) string

// topologyInput has the CPUs of the nodes of each zone, and endpoints by zone.
type topologyInput struct {
	CPU       [][]string     `json:"cpu"`
	Endpoints map[string]int `json:"endpoints"`
	Count     int            `json:"count"`
}

func (r *random) topology() topologyInput {
	in := topologyInput{Endpoints: map[string]int{}, Count: r.between(2, 200)}
	for zone := range r.between(2, 4) {
		cpus := []string{}
		for range r.between(1, 4) {
			cpus = append(cpus, pick(r, []string{fmt.Sprint(r.between(1, 128)), fmt.Sprintf("%dm", r.between(1, 100_000)),
				fmt.Sprintf("%d.%d", r.between(0, 64), r.below(1000))}))
		}
		in.CPU = append(in.CPU, cpus)
		in.Endpoints[fmt.Sprint("zone-", zone)] = r.below(40)
	}
	return in
}

func evaluateTopology(in topologyInput) (any, error) {
	nodes := []*core.Node{}
	for zone, cpus := range in.CPU {
		for _, text := range cpus {
			cpu, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, errNotAnInput
			}
			node := &core.Node{ObjectMeta: meta.ObjectMeta{Labels: map[string]string{core.LabelTopologyZone: fmt.Sprint("zone-", zone)}}}
			node.Status.Allocatable = core.ResourceList{core.ResourceCPU: cpu}
			node.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
			nodes = append(nodes, node)
		}
	}
	cache := topologycache.NewTopologyCache()
	cache.SetNodes(klog.Background(), nodes)
	answer := map[string]any{}
	allocations, event := topologyAllocations(cache, in.Count)
	for zone, a := range allocations {
		answer[zone] = []any{a.minimum, a.maximum, exact(a.desired)}
	}
	if event != nil {
		answer["event"] = event.Message
	}
	cache.SetHints("service", discovery.AddressTypeIPv4, in.Endpoints)
	answer["overloaded"] = cache.GetOverloadedServices()
	return answer, nil
}

type endpointInput struct {
	Endpoint discovery.Endpoint       `json:"endpoint"`
	Ports    []discovery.EndpointPort `json:"ports"`
}

type cidrInput struct {
	Cluster string `json:"cluster"`
	Mask    int    `json:"mask"`
	Occupy  []int  `json:"occupy"`
	Next    int    `json:"next"`
}

func defineNetworkSubjects() {
	define(definition[topologyInput]{
		name:     "endpointslice.topology",
		about:    "k8s.io/endpointslice/topologycache: allocations of endpoints to zones by CPU, and overloaded services",
		generate: (*random).topology,
		evaluate: evaluateTopology,
	})
	define(definition[endpointInput]{
		name:  "endpointslice.hash",
		about: "k8s.io/endpointslice/util: hashes of endpoints and of ports, which group endpoints into slices",
		generate: func(r *random) endpointInput {
			in := endpointInput{}
			for range r.below(4) {
				in.Endpoint.Addresses = append(in.Endpoint.Addresses, fmt.Sprintf("10.%d.%d.%d", r.below(256), r.below(256), r.below(256)))
				in.Ports = append(in.Ports, discovery.EndpointPort{Name: optional(r, r.name()), Port: optional(r, r.int32()),
					Protocol: optional(r, core.ProtocolTCP), AppProtocol: optional(r, r.text())})
			}
			in.Endpoint.Hostname = optional(r, r.name())
			in.Endpoint.TargetRef = optional(r, core.ObjectReference{Namespace: r.name(), Name: r.name()})
			return in
		},
		evaluate: func(in endpointInput) (any, error) {
			return []string{endpointHash(&in.Endpoint), string(endpointutil.NewPortMapKey(in.Ports))}, nil
		},
	})
	define(definition[cidrInput]{
		name:  "node.cidr",
		about: "pkg/controller/nodeipam/ipam/cidrset: subnets of nodes from indexes, with shifts and byte order",
		generate: func(r *random) cidrInput {
			in := cidrInput{Next: r.between(1, 5)}
			// Few clusters: upstream keeps metrics for each, for ever.
			if r.chance(50) {
				size := r.between(8, 24)
				in.Cluster, in.Mask = fmt.Sprintf("10.%d.0.0/%d", 85*r.below(4), size), r.between(size, min(30, size+12))
			} else {
				size := r.between(40, 100)
				in.Cluster, in.Mask = fmt.Sprintf("fd%02x:85a3:8d3::/%d", 85*r.below(4), size), r.between(size, size+12)
			}
			for range r.below(4) {
				in.Occupy = append(in.Occupy, r.below(1<<r.below(12)))
			}
			return in
		},
		evaluate: evaluateCIDR,
	})
}

func evaluateCIDR(in cidrInput) (any, error) {
	_, cluster, err := net.ParseCIDR(in.Cluster)
	if err != nil {
		return nil, errNotAnInput
	}
	if size, bits := cluster.Mask.Size(); in.Mask < size || in.Mask > bits || in.Mask-size > 16 || in.Next > 100 {
		return nil, errNotAnInput
	}
	set, err := cidrset.NewCIDRSet(cluster, in.Mask)
	if err != nil {
		return nil, err
	}
	answer := []string{}
	for _, index := range in.Occupy {
		base := append(net.IP{}, cluster.IP...)
		base[len(base)-2] |= byte(index >> 4)
		answer = append(answer, fmt.Sprint(set.Occupy(&net.IPNet{IP: base, Mask: net.CIDRMask(in.Mask, 8*len(base))})))
	}
	for range in.Next {
		next, err := set.AllocateNext()
		answer = append(answer, fmt.Sprint(next, err))
	}
	return answer, nil
}
