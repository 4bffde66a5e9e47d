//go:build tools

// Package components pins what is built; see targets/components.yaml.
package components

import (
	_ "sigs.k8s.io/cri-tools/cmd/crictl"
)
