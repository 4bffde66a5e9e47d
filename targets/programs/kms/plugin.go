package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kms "k8s.io/kms/apis/v2"
)

// annotation is data that the server must store and send back: without it Decrypt fails.
const annotation = "label.kms.archproof.example"

type plugin struct {
	kms.UnimplementedKeyManagementServiceServer
	keys string
}

// Status names the current key.
func (p *plugin) Status(context.Context, *kms.StatusRequest) (*kms.StatusResponse, error) {
	r, err := readRing(p.keys)
	if err != nil {
		return &kms.StatusResponse{Version: "v2", Healthz: err.Error()}, nil
	}
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyId: r.current}, nil
}

// Encrypt returns a nonce of 12 bytes and the AES-GCM ciphertext, with key ID and label as authenticated data.
func (p *plugin) Encrypt(_ context.Context, request *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	r, err := readRing(p.keys)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	key := r.keys[r.current]
	nonce := make([]byte, key.NonceSize())
	rand.Read(nonce)
	label := make([]byte, 16)
	rand.Read(label)
	fmt.Printf("kms-plugin: wrapped with %s for %s\n", r.current, request.Uid)
	return &kms.EncryptResponse{
		Ciphertext:  key.Seal(nonce, nonce, request.Plaintext, bound(r.current, label)),
		KeyId:       r.current,
		Annotations: map[string][]byte{annotation: label},
	}, nil
}

// Decrypt reverses Encrypt, with the key of the file that the request names.
func (p *plugin) Decrypt(_ context.Context, request *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	r, err := readRing(p.keys)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	key := r.keys[request.KeyId]
	if key == nil {
		return nil, status.Errorf(codes.NotFound, "the key %q is missing", request.KeyId)
	}
	sealed := request.Ciphertext
	if len(sealed) < key.NonceSize() {
		return nil, status.Error(codes.InvalidArgument, "the ciphertext is shorter than a nonce")
	}
	nonce, sealed := sealed[:key.NonceSize()], sealed[key.NonceSize():]
	plain, err := key.Open(nil, nonce, sealed, bound(request.KeyId, request.Annotations[annotation]))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "not wrapped with %s and this label: %v", request.KeyId, err)
	}
	fmt.Printf("kms-plugin: unwrapped with %s for %s\n", request.KeyId, request.Uid)
	return &kms.DecryptResponse{Plaintext: plain}, nil
}

func bound(keyID string, label []byte) []byte {
	return append([]byte(keyID+"\n"), label...)
}
