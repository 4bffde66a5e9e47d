//go:build tools

// Package components pins what is built; see targets/components.yaml.
package components

import (
	_ "github.com/coredns/coredns"
)
