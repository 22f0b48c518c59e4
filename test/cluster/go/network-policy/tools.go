//go:build tools

// Package tools pins the programs that `nodelet assets` builds from this module; nothing is ever compiled from it.
package tools

import (
	_ "sigs.k8s.io/network-policy-api/conformance"
)
