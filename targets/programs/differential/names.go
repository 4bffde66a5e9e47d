// Subjects about names and hashes that servers, controllers, kubelet and kube-proxy derive.
package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"net/netip"
	"sync"
	_ "unsafe" // for go:linkname

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/endpointslice"
	"k8s.io/kubernetes/pkg/api/v1/endpoints"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	"k8s.io/kubernetes/pkg/proxy/nftables"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	hashutil "k8s.io/kubernetes/pkg/util/hash"
)

// Packages whose unexported functions are linked below.
var (
	_ tainteviction.Controller
	_ deployment.DeploymentController
	_ endpointslice.Reconciler
	_ iptables.Proxier
	_ nftables.Proxier
	_ ipallocator.Range
)

func init() {
	defineNameSubjects()
	defineObjectHashSubjects()
	defineAddressSubjects()
}

// ---- Names ----

//go:linkname nameWorkload k8s.io/kubernetes/pkg/controller/job.computeWorkloadName
func nameWorkload(job *batch.Job) string

//go:linkname namePodGroup k8s.io/kubernetes/pkg/controller/job.computePodGroupName
func namePodGroup(workload, template string) string

//go:linkname nameReplicaSet k8s.io/kubernetes/pkg/controller/deployment.generateReplicaSetName
func nameReplicaSet(deployment, hash string) string

//go:linkname namePortChain k8s.io/kubernetes/pkg/proxy/iptables.portProtoHash
func namePortChain(port, protocol string) string

//go:linkname nameNFTChain k8s.io/kubernetes/pkg/proxy/nftables.hashAndTruncate
func nameNFTChain(name string) string

//go:linkname nameEvictionWorker k8s.io/kubernetes/pkg/controller/tainteviction.hash
func nameEvictionWorker(key string, workers int) int

//go:linkname nameSlicePrefix k8s.io/endpointslice.getEndpointSlicePrefix
func nameSlicePrefix(service string) string

type nameInput struct {
	Name      string `json:"name"`
	Other     string `json:"other"`
	UID       string `json:"uid"`
	Seed      int64  `json:"seed"`
	Workers   int32  `json:"workers"`
	Encodable string `json:"encodable"`
}

// nameRandom serializes the use of the package-wide generator of k8s.io/apimachinery/pkg/util/rand.
var nameRandom sync.Mutex

// generatedNames returns names with random suffixes after seeding the generator.
func generatedNames(base string, seed int64) []string {
	nameRandom.Lock()
	defer nameRandom.Unlock()
	rand.Seed(seed)
	return []string{names.SimpleNameGenerator.GenerateName(base + "-"), rand.String(10),
		fmt.Sprint(rand.Intn(1000), rand.IntnRange(-5, 70000), rand.Perm(5))}
}

func defineNameSubjects() {
	long := func(r *random) string {
		name := r.name()
		for range r.below(12) {
			name += pick(r, []string{"-", "."}) + r.name()
		}
		return name
	}
	define(definition[nameInput]{
		name:  "name.derived",
		about: "names from hashes: workloads, pod groups, ReplicaSets, chains of kube-proxy, storage versions, eviction workers, service tables",
		generate: func(r *random) nameInput {
			uid := fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", r.below(1<<32), r.below(1<<16), r.below(1<<12),
				r.below(1<<12), r.below(1<<48))
			return nameInput{Name: long(r), Other: long(r), UID: uid, Workers: int32(r.between(1, 100)),
				Encodable: fmt.Sprint(r.uint64())}
		},
		evaluate: func(in nameInput) (any, error) {
			if in.Workers < 1 {
				return nil, errNotAnInput
			}
			job := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: in.Name, UID: types.UID(in.UID)}}
			return []string{nameWorkload(job), namePodGroup(in.Name, in.Other), nameReplicaSet(in.Name, in.Other),
				namePortChain(in.Name, in.Other),
				nameNFTChain(in.Name), fmt.Sprint(nameEvictionWorker(in.Name,
					int(in.Workers))), discovery.StorageVersionHash(in.Name, "v1", in.Other),
				rand.SafeEncodeString(in.Encodable), nameSlicePrefix(in.Name)}, nil
		},
	})
	define(definition[nameInput]{
		name:  "name.generated",
		about: "k8s.io/apiserver/pkg/storage/names and k8s.io/apimachinery/pkg/util/rand: generated suffixes from a seed",
		generate: func(r *random) nameInput {
			return nameInput{Name: long(r), Seed: r.int64()}
		},
		evaluate: func(in nameInput) (any, error) { return generatedNames(in.Name, in.Seed), nil },
	})
}

// ---- Hashes of objects ----

// hashInput has a JSON value, whose decoded form is hashed, and values of other types.
type hashInput struct {
	JSON     string         `json:"json"`
	Numbers  []int64        `json:"numbers"`
	Small    []int8         `json:"small"`
	Unsigned []uint64       `json:"unsigned"`
	Runes    string         `json:"runes"`
	Map      map[int64]bool `json:"map"`
}

// nestedJSON returns JSON text with numbers in every spelling.
func (r *random) nestedJSON(depth int) string {
	switch r.below(6) {
	case 0:
		text, _ := json.Marshal(r.text())
		return string(text)
	case 1, 2:
		return r.number()
	case 3:
		return pick(r, []string{"true", "false", "null"})
	case 4:
		if depth > 0 {
			return fmt.Sprintf("[%s,%s]", r.nestedJSON(depth-1), r.nestedJSON(depth-1))
		}
		return "[]"
	default:
		if depth > 0 {
			return fmt.Sprintf(`{%q:%s,%q:%s}`, r.name(), r.nestedJSON(depth-1), r.name(), r.nestedJSON(depth-1))
		}
		return "{}"
	}
}

func defineObjectHashSubjects() {
	define(definition[hashInput]{
		name:  "hash.object",
		about: "pkg/util/hash DeepHashObject of numbers, floats, texts and maps, and pkg/kubelet/checkpointmanager checksums",
		generate: func(r *random) hashInput {
			in := hashInput{JSON: r.nestedJSON(3), Runes: r.text(), Map: map[int64]bool{}}
			for range r.below(4) {
				in.Numbers, in.Unsigned = append(in.Numbers, r.int64()), append(in.Unsigned, r.uint64())
				in.Small = append(in.Small, int8(r.int64()))
				in.Map[r.int64()] = r.chance(50)
			}
			return in
		},
		evaluate: func(in hashInput) (any, error) {
			var value any
			if err := json.Unmarshal([]byte(in.JSON), &value); err != nil {
				return nil, err
			}
			object := struct {
				Value    any
				Numbers  []int64
				Small    []int8
				Unsigned []uint64
				Runes    []rune
				Map      map[int64]bool
			}{value, in.Numbers, in.Small, in.Unsigned, []rune(in.Runes), in.Map}
			hash := fnv.New32a()
			hashutil.DeepHashObject(hash, object)
			return []any{hash.Sum32(), fmt.Sprint(checksum.New(object))}, nil
		},
	})
	define(definition[core.Container]{
		name:     "hash.container",
		about:    "pkg/kubelet/container HashContainer: kubelet's decision to restart a container",
		generate: func(r *random) core.Container { return r.container() },
		evaluate: func(in core.Container) (any, error) { return kubecontainer.HashContainer(&in), nil },
	})
	define(definition[[]core.EndpointSubset]{
		name:  "endpoints.subsets",
		about: "pkg/api/v1/endpoints RepackSubsets: hashes of addresses decide the order of the subsets",
		generate: func(r *random) []core.EndpointSubset {
			subsets := []core.EndpointSubset{}
			for range r.between(1, 4) {
				subset := core.EndpointSubset{}
				for range r.between(1, 3) {
					subset.Addresses = append(subset.Addresses, core.EndpointAddress{IP: fmt.Sprintf("10.0.0.%d",
						r.below(8)), NodeName: optional(r, r.name()),
						TargetRef: optional(r, core.ObjectReference{Kind: "Pod",
							UID: types.UID(fmt.Sprint(r.below(4)))})})
					subset.Ports = append(subset.Ports, core.EndpointPort{Name: pick(r, []string{"", "a", "b"}),
						Port: int32(r.between(1, 6)), Protocol: "TCP"})
				}
				subsets = append(subsets, subset)
			}
			return subsets
		},
		evaluate: func(in []core.EndpointSubset) (any, error) { return endpoints.RepackSubsets(in), nil },
	})
}

// ---- Addresses of services ----

//go:linkname addressOffset k8s.io/kubernetes/pkg/registry/core/service/ipallocator.addOffsetAddress
func addressOffset(address netip.Addr, offset uint64) (netip.Addr, error)

//go:linkname addressHosts k8s.io/kubernetes/pkg/registry/core/service/ipallocator.hostsPerNetwork
func addressHosts(subnet *net.IPNet) uint64

//go:linkname addressBroadcast k8s.io/kubernetes/pkg/registry/core/service/ipallocator.broadcastAddress
func addressBroadcast(subnet netip.Prefix) (netip.Addr, error)

//go:linkname addressRangeOffset k8s.io/kubernetes/pkg/registry/core/service/ipallocator.calculateRangeOffset
func addressRangeOffset(cidr *net.IPNet) int

type addressInput struct {
	CIDR   string `json:"cidr"`
	Offset uint64 `json:"offset"`
}

func defineAddressSubjects() {
	define(definition[addressInput]{
		name:  "address.service",
		about: "pkg/registry/core/service/ipallocator: sizes, offsets and last addresses of service networks",
		generate: func(r *random) addressInput {
			in := addressInput{Offset: r.uint64() >> r.below(64)}
			if r.chance(50) {
				in.CIDR = fmt.Sprintf("%d.%d.%d.%d/%d", r.below(256), r.below(256), r.below(256), r.below(256),
					r.between(0, 32))
			} else {
				in.CIDR = fmt.Sprintf("%x:%x::%x:%x/%d", r.below(65536), r.below(65536), r.below(65536),
					r.below(65536), r.between(0, 128))
			}
			return in
		},
		evaluate: func(in addressInput) (any, error) {
			prefix, err := netip.ParsePrefix(in.CIDR)
			_, network, err2 := net.ParseCIDR(in.CIDR)
			if err != nil || err2 != nil {
				return nil, errNotAnInput
			}
			address, err := addressOffset(prefix.Masked().Addr(), in.Offset)
			last, err2 := addressBroadcast(prefix)
			return []string{fmt.Sprint(address, err), fmt.Sprint(last, err2), fmt.Sprint(addressHosts(network)),
				fmt.Sprint(addressRangeOffset(network))}, nil
		},
		class: func(in addressInput) string {
			if in.Offset > math.MaxInt64 {
				return "offset beyond int64"
			}
			return "ordinary offset"
		},
	})
}
