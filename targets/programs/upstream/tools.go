//go:build tools

// Keeps packages in go.mod that are built from this module, although no package of it imports them.
package main

import (
	_ "k8s.io/kubernetes/test/images/agnhost"
	_ "k8s.io/sample-apiserver"
)
