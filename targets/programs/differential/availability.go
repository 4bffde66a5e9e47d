// Subjects about disruption budgets, DaemonSets, states of zones, endpoint slices and subnets of nodes.
package main

import (
	"context"
	"fmt"
	"net"
	_ "unsafe" // for go:linkname

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/endpointslice/topologycache"
	endpointutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
)

func init() {
	defineAvailabilitySubjects()
	defineNetworkSubjects()
}

// ---- Disruption budgets, DaemonSets and zones ----

//go:linkname pdbExpected k8s.io/kubernetes/pkg/controller/disruption.(*DisruptionController).getExpectedPodCount
func pdbExpected(dc *disruption.DisruptionController, ctx context.Context, pdb *policy.PodDisruptionBudget,
	pods []*core.Pod) (int32, int32, []string, error)

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
			return &apps.StatefulSet{ObjectMeta: meta.ObjectMeta{Name: name, UID: types.UID(name)},
				Spec: apps.StatefulSetSpec{Replicas: &s[i]}}, nil
		}
	}
	return nil, fmt.Errorf("no StatefulSet %s", name)
}

func evaluatePDB(in pdbInput) (any, error) {
	for _, value := range []*intstr.IntOrString{in.MinAvailable, in.MaxUnavailable} {
		if value != nil && !acceptable(*value, 100) {
			return nil, errNotAnInput
		}
	}
	budget := &policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{MinAvailable: in.MinAvailable,
		MaxUnavailable: in.MaxUnavailable}}
	pods := []*core.Pod{}
	for i := range in.Owners {
		owner := meta.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: fmt.Sprint(i),
			UID: types.UID(fmt.Sprint(i)), Controller: ptrTo(true)}
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
			if value := r.share(); r.chance(50) {
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
	})
	define(definition[fencepostsInput]{
		name:  "daemonset.counts",
		about: "pkg/controller/daemon/util SurgeCount and UnavailableCount",
		generate: func(r *random) fencepostsInput {
			return fencepostsInput{r.share(), r.share(), r.replicas()}
		},
		evaluate: func(in fencepostsInput) (any, error) {
			if !acceptable(in.MaxSurge, 100) || !acceptable(in.MaxUnavailable, 100) || in.Replicas < 0 {
				return nil, errNotAnInput
			}
			set := &apps.DaemonSet{Spec: apps.DaemonSetSpec{UpdateStrategy: apps.DaemonSetUpdateStrategy{Type: apps.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &apps.RollingUpdateDaemonSet{MaxSurge: &in.MaxSurge,
					MaxUnavailable: &in.MaxUnavailable}}}}
			surge, err := daemonutil.SurgeCount(set, int(in.Replicas))
			unavailable, err2 := daemonutil.UnavailableCount(set, int(in.Replicas))
			return []string{fmt.Sprint(surge, err), fmt.Sprint(unavailable, err2)}, nil
		},
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
func topologyAllocations(cache *topologycache.TopologyCache, endpoints int) (map[string]zoneAllocation,
	*topologycache.EventBuilder)

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
			cpus = append(cpus, pick(r, []string{fmt.Sprint(r.between(1, 128)),
				fmt.Sprintf("%dm", r.between(1, 100_000)),
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
				in.Endpoint.Addresses = append(in.Endpoint.Addresses, fmt.Sprintf("10.%d.%d.%d", r.below(256),
					r.below(256), r.below(256)))
				in.Ports = append(in.Ports, discovery.EndpointPort{Name: optional(r, r.name()), Port: optional(r,
					r.int32()),
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
			// Few clusters: upstream keeps metrics for each of them.
			if r.chance(50) {
				size := r.between(8, 24)
				in.Cluster, in.Mask = fmt.Sprintf("10.%d.0.0/%d", 85*r.below(4), size), r.between(size,
					min(30, size+12))
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
