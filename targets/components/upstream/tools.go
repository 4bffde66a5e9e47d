//go:build tools

// Keeps what is built from this module, and imported by nothing in it, in go.mod.
package main

import (
	_ "k8s.io/kubernetes/test/images/agnhost"
	_ "k8s.io/sample-apiserver"
)
