// Subjects about arithmetic, hashes and decisions of kube-controller-manager's controllers.
package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/robfig/cron/v3"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/job"
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
	defineDeploymentSubjects()
	defineRevisionSubjects()
	defineJobSubjects()
	defineCronJobSubjects()
}

// ---- Deployments and ReplicaSets ----

// surge returns a value that validation accepts as maxSurge of a Deployment: a count or any percentage.
func (r *random) surge() intstr.IntOrString {
	if r.chance(15) {
		return intstr.FromString(fmt.Sprintf("%d%%", uint64(r.int64())>>1))
	}
	return r.share()
}

// share returns a count or a percentage up to 100, as validation accepts in most rollouts and disruption budgets.
func (r *random) share() intstr.IntOrString {
	switch r.below(6) {
	case 0, 1:
		return intstr.FromInt32(int32(r.between(0, 50)))
	case 2:
		return intstr.FromInt32(r.int32() & math.MaxInt32)
	default:
		return intstr.FromString(fmt.Sprintf("%d%%", r.between(0, 100)))
	}
}

// acceptable is true if validation accepts the value with the largest percentage.
func acceptable(value intstr.IntOrString, largest int64) bool {
	if value.Type == intstr.Int {
		return value.IntVal >= 0
	}
	digits, percent := strings.CutSuffix(value.StrVal, "%")
	number, err := strconv.ParseInt(digits, 10, 64)
	return percent && err == nil && !strings.HasPrefix(digits, "+") && number >= 0 && number <= largest
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
	in := scaleInput{MaxSurge: r.surge(), MaxUnavailable: r.share(), Replicas: r.replicas(),
		StatusReplicas: r.replicas(), ReplicaSet: r.replicas(), ToAdd: int32(r.between(-100, 300)),
		Added: int32(r.between(-100, 100))}
	in.MaxBefore = pick(r, []string{fmt.Sprint(r.replicas()), fmt.Sprint(in.Replicas), "", "0", "-1", "2147483648",
		"1e3"})
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
			return fencepostsInput{r.surge(), r.share(), r.replicas()}
		},
		evaluate: func(in fencepostsInput) (any, error) {
			if !acceptable(in.MaxSurge, math.MaxInt64) || !acceptable(in.MaxUnavailable, 100) || in.Replicas < 0 {
				return nil, errNotAnInput
			}
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
			if !acceptable(in.MaxSurge, math.MaxInt64) || !acceptable(in.MaxUnavailable, 100) || in.Replicas < 0 {
				return nil, errNotAnInput
			}
			deployment, set, all := in.objects()
			next, err := deploymentutil.NewRSNewReplicas(&deployment, all, set)
			return map[string]any{
				"proportion": deploymentutil.GetReplicaSetProportion(klog.Background(), set, deployment, in.ToAdd,
					in.Added),
				"next": next, "error": fmt.Sprint(err),
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
			return controllerLogRank(meta.NewTime(now.Add(-time.Duration(in[0]))),
				meta.NewTime(now.Add(-time.Duration(in[1]))), now), nil
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
		list[pick(r, []core.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi",
			"example.org/gpu"})] = r.validQuantity()
	}
	return list
}

func (r *random) probe() *core.Probe {
	return optional(r, core.Probe{InitialDelaySeconds: r.int32(), TimeoutSeconds: r.int32(), PeriodSeconds: r.int32(),
		SuccessThreshold: r.int32(), FailureThreshold: r.int32(), TerminationGracePeriodSeconds: optional(r, r.int64()),
		ProbeHandler: core.ProbeHandler{TCPSocket: &core.TCPSocketAction{Port: r.share(), Host: r.name()}}})
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
		c.SecurityContext = &core.SecurityContext{RunAsUser: optional(r, r.int64()),
			Privileged: optional(r, r.chance(50))}
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
		t.Spec.Tolerations = append(t.Spec.Tolerations, core.Toleration{Key: r.name(), TolerationSeconds: optional(r,
			r.int64())})
		t.Spec.Volumes = append(t.Spec.Volumes, core.Volume{Name: r.name(), VolumeSource: core.VolumeSource{
			EmptyDir: &core.EmptyDirVolumeSource{SizeLimit: optional(r, r.validQuantity())}}})
	}
	return t
}

func defineRevisionSubjects() {
	generate := func(r *random) templateInput {
		return templateInput{Name: r.name(), Template: r.template(), Collisions: optional(r, r.int32()),
			Revision: r.int64()}
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
			return map[string]any{"stateful": revision.Name, "daemon": history.HashControllerRevision(daemon,
				in.Collisions),
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
func jobMatchSuccess(logger klog.Logger, policy *batch.SuccessPolicy, completions int32,
	succeeded []jobInterval) (string, bool)

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
				Completions: r.replicas(), Index: r.replicas(), Name: r.name() + strings.Repeat("x",
					r.below(60)), BackoffLimit: r.replicas()}
			for range r.below(4) {
				in.RestartCount = append(in.RestartCount, r.replicas())
			}
			return in
		},
		evaluate: func(in indexesInput) (any, error) {
			logger := klog.Background()
			succeeded := jobParseIndexes(logger, in.Completed, int(in.Completions))
			success := &batch.SuccessPolicy{Rules: []batch.SuccessPolicyRule{{SucceededIndexes: in.Rule,
				SucceededCount: in.Count}}}
			message, matched := jobMatchSuccess(logger, success, in.Completions, succeeded)
			owner := &batch.Job{Spec: batch.JobSpec{BackoffLimit: &in.BackoffLimit}}
			owner.Spec.Template.Spec.RestartPolicy = core.RestartPolicyOnFailure
			pod := &core.Pod{Status: core.PodStatus{Phase: core.PodRunning}}
			for _, count := range in.RestartCount {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
					core.ContainerStatus{RestartCount: count})
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
				Limit: int64(r.between(1,
					3600)) * int64(time.Second), Elapsed: int64(r.below(1 << 50)), TTL: r.replicas(),
				Finished: int64(r.between(-1<<35, 1<<36))}
		},
		evaluate: func(in backoffInput) (any, error) {
			last := controllerTime.Add(-time.Duration(in.Elapsed))
			wait := jobRemaining(testclock.NewFakeClock(controllerTime), time.Duration(in.Initial),
				time.Duration(in.Limit), in.Failures, &last)
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
func cronMostRecent(owner *batch.CronJob, now time.Time, schedule cron.Schedule, deadline bool) (time.Time,
	*time.Time, int, error)

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
		return pick(r, []string{"@every 90s", "@every 7m", "@hourly", "@daily", "@monthly", "@every 0.5s",
			"59 23 31 2 *", "@every 1000000h"})
	}
	return strings.Join([]string{r.cronField(0, 59), r.cronField(0, 23), r.cronField(1, 31), r.cronField(1, 12),
		r.cronField(0, 6)}, " ")
}

func defineCronJobSubjects() {
	define(definition[cronInput]{
		name:  "cronjob.schedule",
		about: "pkg/controller/cronjob: the last missed time, the number of missed times, the next check, the name of the Job",
		generate: func(r *random) cronInput {
			// A walk over many years of a dense schedule takes long, so ages are at most some months.
			age := func() int64 { return int64(r.below(1 << r.between(1, 23))) }
			return cronInput{Schedule: r.schedule(), TimeZone: optional(r, pick(r, []string{"UTC", "Etc/UTC",
				"Nowhere/Land"})),
				Created: age(), Last: optional(r, age()), Deadline: optional(r,
					pick(r, []int64{age(), r.int64() & math.MaxInt64}))}
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
