//go:build tools

// Package tools names the commands that are built from this module, so that `go mod tidy` keeps what they need, and a
// package of the pinned module.
package tools

import (
	_ "archproof/programs/client"
	_ "k8s.io/client-go/kubernetes"
)
