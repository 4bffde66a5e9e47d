// Subjects about etcd's storage and the API server's layer above it: keys, logs, snapshots, pages, hashes, ciphertext,
// gzip.
package main

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"golang.org/x/crypto/nacl/secretbox"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
	encryptaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	encryptbox "k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
)

// Packages whose unexported functions are linked below.
var (
	_ etcd3.LeaseManagerConfig
	_ wal.WAL
	_ = schema.Lease
)

func init() {
	defineKeySubjects()
	defineFileSubjects()
	defineServerSubjects()
}

// bytesOf returns bytes that follow from a seed: inputs stay small although contents are large.
func bytesOf(seed uint64, size int, alphabet string) []byte {
	content, r := make([]byte, size), newRandom(seed, "bytes", 0)
	for i := range content {
		if alphabet == "" {
			content[i] = byte(r.uint64())
		} else {
			content[i] = alphabet[r.below(len(alphabet))]
		}
	}
	return content
}

// contentDigest returns the size and the SHA-256 of bytes.
func contentDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return fmt.Sprint(len(content), " ", hex.EncodeToString(sum[:]))
}

// ---- Keys and messages ----

//go:linkname etcdLeaseKey go.etcd.io/etcd/server/v3/storage/schema.leaseIDToBytes
func etcdLeaseKey(id int64) []byte

//go:linkname etcdLeaseID go.etcd.io/etcd/server/v3/storage/schema.bytesToLeaseID
func etcdLeaseID(key []byte) int64

//go:linkname etcdNewLeases k8s.io/apiserver/pkg/storage/etcd3.newLeaseManager
func etcdNewLeases(client unsafe.Pointer, seconds int64, percent float64, objects int64) unsafe.Pointer

//go:linkname etcdReuseSeconds k8s.io/apiserver/pkg/storage/etcd3.(*leaseManager).getReuseDurationSecondsLocked
func etcdReuseSeconds(manager unsafe.Pointer, ttl int64) int64

type keyInput struct {
	Main  int64  `json:"main"`
	Sub   int64  `json:"sub"`
	Lease int64  `json:"lease"`
	TTL   int64  `json:"ttl"`
	Key   string `json:"key"`
}

func evaluateKeys(in keyInput) (any, error) {
	// Revisions are positive, and so is a TTL.
	if in.Main < 0 || in.Sub < 0 || in.TTL < 0 {
		return nil, errNotAnInput
	}
	key := mvcc.RevToBytes(mvcc.Revision{Main: in.Main, Sub: in.Sub}, mvcc.NewRevBytes())
	entry := raftpb.Entry{Term: proto.Uint64(uint64(in.Sub)), Index: proto.Uint64(uint64(in.Main)), Data: []byte(in.Key)}
	request := pb.InternalRaftRequest{ID: uint64(in.Lease), Put: &pb.PutRequest{Key: []byte(in.Key), Value: key,
		Lease: in.Lease}}
	stored := mvccpb.KeyValue{Key: []byte(in.Key), CreateRevision: in.Main, ModRevision: in.Main, Version: in.Sub,
		Lease: in.Lease}
	answer := []string{hex.EncodeToString(key), fmt.Sprint(mvcc.BytesToRev(key)),
		hex.EncodeToString(etcdLeaseKey(in.Lease)),
		fmt.Sprint(etcdLeaseID(etcdLeaseKey(in.Lease))), fmt.Sprint(etcdReuseSeconds(etcdNewLeases(nil, 60, 0.05,
			1000), in.TTL))}
	for _, message := range []proto.Message{&entry, &request, &stored} {
		encoded, err := proto.Marshal(message)
		if err != nil {
			return nil, err
		}
		answer = append(answer, hex.EncodeToString(encoded))
	}
	token, err := storage.EncodeContinue("/registry/pods/"+in.Key, "/registry/pods/", in.Main)
	from, revision, err2 := storage.DecodeContinue(token, "/registry/pods/")
	return append(answer, fmt.Sprint(token, err), fmt.Sprint(from, revision, err2)), nil
}

func defineKeySubjects() {
	define(definition[keyInput]{
		name:  "etcd.keys",
		about: "etcd's keys of revisions and leases, raft entries, requests and values as protobuf; continue tokens and lease reuse of the API server",
		generate: func(r *random) keyInput {
			return keyInput{r.int64() & math.MaxInt64, r.int64() & math.MaxInt64, r.int64(),
				r.int64() & math.MaxInt64, r.text()}
		},
		evaluate: evaluateKeys,
		class: func(in keyInput) string {
			if in.TTL > 1<<53 {
				return "TTL beyond 2^53"
			}
			return "ordinary TTL"
		},
	})
}

// ---- Files ----

// walEncoder is pkg wal's encoder.
type walEncoder = unsafe.Pointer

//go:linkname walNewEncoder go.etcd.io/etcd/server/v3/storage/wal.newEncoder
func walNewEncoder(w io.Writer, crc uint32, offset int) walEncoder

//go:linkname walEncode go.etcd.io/etcd/server/v3/storage/wal.(*encoder).encode
func walEncode(encoder walEncoder, record *walpb.Record) error

//go:linkname walFlush go.etcd.io/etcd/server/v3/storage/wal.(*encoder).flush
func walFlush(encoder walEncoder) error

// fileRecord is a record of a log, or a write of a transaction, whose content follows from the seed.
type fileRecord struct {
	Type int64  `json:"type"`
	Seed uint64 `json:"seed"`
	Size int    `json:"size"`
}

type fileInput struct {
	CRC     uint32       `json:"crc"`
	Records []fileRecord `json:"records"`
}

func (r *random) file() fileInput {
	in := fileInput{CRC: uint32(r.uint64())}
	for range r.between(1, 8) {
		in.Records = append(in.Records, fileRecord{int64(r.between(0, 5)), r.uint64(), r.below(1 << r.between(1, 11))})
	}
	return in
}

func (in fileInput) valid() bool {
	for _, record := range in.Records {
		if record.Size < 0 || record.Size > 1<<20 {
			return false
		}
	}
	return len(in.Records) > 0
}

func evaluateWAL(in fileInput) (any, error) {
	if !in.valid() {
		return nil, errNotAnInput
	}
	var log bytes.Buffer
	encoder, sums := walNewEncoder(&log, in.CRC, 0), []uint32{}
	for _, record := range in.Records {
		written := walpb.Record{Type: proto.Int64(record.Type), Data: bytesOf(record.Seed, record.Size, "")}
		if err := walEncode(encoder, &written); err != nil {
			return nil, err
		}
		sums = append(sums, written.GetCrc())
	}
	if err := walFlush(encoder); err != nil {
		return nil, err
	}
	return []any{contentDigest(log.Bytes()), sums}, nil
}

// inFolder calls work with a new folder and removes it. Files are in memory if the system has such a file system.
func inFolder(work func(folder string) (any, error)) (any, error) {
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = ""
	}
	folder, err := os.MkdirTemp(base, "differential-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	return work(folder)
}

func evaluateSnapshot(in fileInput) (any, error) {
	if !in.valid() {
		return nil, errNotAnInput
	}
	return inFolder(func(folder string) (any, error) {
		record := in.Records[0]
		snapshot := raftpb.Snapshot{Data: bytesOf(record.Seed, record.Size, ""), Metadata: &raftpb.SnapshotMetadata{
			Index: proto.Uint64(uint64(in.CRC) + 1), Term: proto.Uint64(record.Seed),
			ConfState: &raftpb.ConfState{Voters: []uint64{record.Seed, 1}}}}
		snapshotter := snap.New(zap.NewNop(), folder)
		if err := snapshotter.SaveSnap(&snapshot); err != nil {
			return nil, err
		}
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("%d snapshot files: %v", len(files), err)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			return nil, err
		}
		loaded, err := snapshotter.Load()
		if err != nil {
			return nil, err
		}
		return []any{filepath.Base(files[0]), contentDigest(content), loaded.GetMetadata().GetIndex(),
			contentDigest(loaded.Data)}, nil
	})
}

// boltPageSize is fixed, because the page size of the machine is not a fact of the architecture.
const boltPageSize = 4096

func evaluateBolt(in fileInput) (any, error) {
	if !in.valid() {
		return nil, errNotAnInput
	}
	return inFolder(func(folder string) (any, error) {
		file := filepath.Join(folder, "db")
		db, err := bbolt.Open(file, 0o600, &bbolt.Options{PageSize: boltPageSize, NoSync: true, NoGrowSync: true,
			FreelistType: bbolt.FreelistArrayType})
		if err != nil {
			return nil, err
		}
		for _, record := range in.Records {
			if err := db.Update(func(tx *bbolt.Tx) error { return writeBolt(tx, record) }); err != nil {
				return nil, err
			}
		}
		if err := db.Close(); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(file)
		return []string{contentDigest(content[:min(len(content), 2*boltPageSize)]), contentDigest(content)}, err
	})
}

// writeBolt writes a value to one of two buckets, or deletes the first key of one.
func writeBolt(tx *bbolt.Tx, record fileRecord) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(fmt.Sprint("bucket-", record.Type%2)))
	if err != nil {
		return err
	}
	if key, _ := bucket.Cursor().First(); record.Type == 5 && key != nil {
		return bucket.Delete(key)
	}
	return bucket.Put(bytesOf(record.Seed, 8, ""), bytesOf(record.Seed+1, record.Size, ""))
}

// evaluateHashKV writes revisions to a store of etcd and returns the hash of each, which members compare with each
// other.
func evaluateHashKV(in fileInput) (any, error) {
	if !in.valid() {
		return nil, errNotAnInput
	}
	return inFolder(func(folder string) (any, error) {
		disk := backend.New(backend.BackendConfig{Path: filepath.Join(folder, "db"), BatchInterval: time.Hour,
			BatchLimit: 10_000,
			MmapSize:   1 << 20, Logger: zap.NewNop(), UnsafeNoFsync: true, BackendFreelistType: bbolt.FreelistArrayType})
		defer disk.Close()
		store := mvcc.NewStore(zap.NewNop(), disk, &lease.FakeLessor{}, mvcc.StoreConfig{})
		defer store.Close()
		hashes := []string{}
		for _, record := range in.Records {
			key := []byte(fmt.Sprint("/registry/", record.Type))
			if record.Size%5 == 0 {
				store.DeleteRange(key, nil)
			} else {
				store.Put(key, bytesOf(record.Seed, record.Size, ""), lease.LeaseID(record.Type))
			}
			hash, revision, err := store.HashStorage().HashByRev(0)
			hashes = append(hashes, fmt.Sprint(hash.Hash, revision, err))
		}
		return hashes, nil
	})
}

func defineFileSubjects() {
	define(definition[fileInput]{
		name:     "etcd.wal",
		about:    "go.etcd.io/etcd/server/v3/storage/wal: bytes and checksums of records of the write-ahead log",
		generate: (*random).file,
		evaluate: evaluateWAL,
	})
	define(definition[fileInput]{
		name:     "etcd.snapshot",
		about:    "go.etcd.io/etcd/server/v3/etcdserver/api/snap: name, bytes and checksum of a snapshot file",
		generate: func(r *random) fileInput { in := r.file(); in.Records = in.Records[:1]; return in },
		evaluate: evaluateSnapshot,
	})
	define(definition[fileInput]{
		name:     "etcd.pages",
		about:    "go.etcd.io/bbolt: bytes of a small database with a page size of 4096, which are in the byte order of the architecture",
		generate: (*random).file,
		evaluate: evaluateBolt,
	})
	define(definition[fileInput]{
		name:     "etcd.hash",
		about:    "go.etcd.io/etcd/server/v3/storage/mvcc: HashKV of each revision of a store",
		generate: (*random).file,
		evaluate: evaluateHashKV,
	})
}

// ---- The API server's layer: encryption and compression ----

type cipherInput struct {
	Provider string `json:"provider"`
	Seed     uint64 `json:"seed"`
	Size     int    `json:"size"`
	// Flip is the index of a byte that is changed before the value is read, or -1.
	Flip int `json:"flip"`
}

// sealed encrypts as the provider does, with a nonce that follows from the seed: the providers take random ones.
func sealed(in cipherInput, key, plain, nonce, data []byte) (value.Transformer, []byte, error) {
	switch in.Provider {
	case "aesgcm":
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, nil, err
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, nil, err
		}
		transformer, err := encryptaes.NewGCMTransformer(block)
		return transformer, gcm.Seal(append([]byte{}, nonce[:12]...), nonce[:12], plain, data), err
	case "kmsv2":
		derived, err := hkdf.Expand(sha256.New, key, string(nonce[:32]), 32)
		if err != nil {
			return nil, nil, err
		}
		_, inner, err := sealed(cipherInput{Provider: "aesgcm"}, derived, plain, nonce[32:], data)
		if err != nil {
			return nil, nil, err
		}
		transformer, err := encryptaes.NewHKDFExtendedNonceGCMTransformer(key)
		return transformer, append(append([]byte{}, nonce[:32]...), inner...), err
	case "aescbc":
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, nil, err
		}
		padding := aes.BlockSize - len(plain)%aes.BlockSize
		padded := append(append([]byte{}, plain...), bytes.Repeat([]byte{byte(padding)}, padding)...)
		cipher.NewCBCEncrypter(block, nonce[:16]).CryptBlocks(padded, padded)
		return encryptaes.NewCBCTransformer(block), append(append([]byte{}, nonce[:16]...), padded...), nil
	case "secretbox":
		box := secretbox.Seal(append([]byte{}, nonce[:24]...), plain, (*[24]byte)(nonce[:24]), (*[32]byte)(key))
		return encryptbox.NewSecretboxTransformer([32]byte(key)), box, nil
	}
	return nil, nil, errNotAnInput
}

func evaluateCipher(in cipherInput) (any, error) {
	if in.Size < 0 || in.Size > 1<<20 {
		return nil, errNotAnInput
	}
	context, dataContext := context.Background(), value.DefaultContext("/registry/secrets/default/a")
	transformer, stored, err := sealed(in, bytesOf(in.Seed, 32, ""), bytesOf(in.Seed+1, in.Size, ""),
		bytesOf(in.Seed+2, 64, ""), dataContext.AuthenticatedData())
	if err != nil {
		return nil, err
	}
	answer := []string{contentDigest(stored)}
	if in.Flip >= 0 {
		stored[in.Flip%len(stored)] ^= 1
	}
	read, stale, err := transformer.TransformFromStorage(context, stored, dataContext)
	return append(answer, contentDigest(read), fmt.Sprint(stale, err)), nil
}

// gzipInput is a response whose content follows from the seed.
type gzipInput struct {
	Seed     uint64 `json:"seed"`
	Size     int    `json:"size"`
	Alphabet string `json:"alphabet"`
}

// rawEncoder writes the bytes of an object of unknown type.
type rawEncoder struct{}

func (rawEncoder) Encode(object runtime.Object, w io.Writer) error {
	_, err := w.Write(object.(*runtime.Unknown).Raw)
	return err
}

func (rawEncoder) Identifier() runtime.Identifier { return "raw" }

func evaluateGzip(in gzipInput) (any, error) {
	if in.Size < 0 || in.Size > 1<<22 {
		return nil, errNotAnInput
	}
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	response := httptest.NewRecorder()
	object := &runtime.Unknown{Raw: bytesOf(in.Seed, in.Size, in.Alphabet)}
	responsewriters.SerializeObject("application/json", rawEncoder{}, response, request, http.StatusOK, object)
	return []string{response.Header().Get("Content-Encoding"), contentDigest(response.Body.Bytes())}, nil
}

func defineServerSubjects() {
	define(definition[cipherInput]{
		name:  "storage.encryption",
		about: "k8s.io/apiserver/pkg/storage/value/encrypt: ciphertext of each provider and its decryption, also of damaged bytes",
		generate: func(r *random) cipherInput {
			in := cipherInput{pick(r, []string{"aesgcm", "kmsv2", "aescbc", "secretbox"}), r.uint64(),
				r.below(1 << r.between(1, 12)), -1}
			if r.chance(30) {
				in.Flip = r.below(5000)
			}
			return in
		},
		evaluate: evaluateCipher,
		class:    func(in cipherInput) string { return in.Provider },
	})
	define(definition[gzipInput]{
		name:  "response.gzip",
		about: "k8s.io/apiserver/pkg/endpoints/handlers/responsewriters: gzip of responses over 128 KiB",
		generate: func(r *random) gzipInput {
			return gzipInput{r.uint64(), r.between(128<<10, 136<<10), pick(r, []string{"ab", strings.Repeat("abc",
				3) + `{":0,}`, "0123456789", ""})}
		},
		evaluate: evaluateGzip,
	})
}
