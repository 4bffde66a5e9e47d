//go:build tools

// Package tools names the commands that are built from this module, so that `go mod tidy` keeps what they need.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
