// Package goamqp pins go-amqp and what its integration tests import, so that `go test
// github.com/Azure/go-amqp` runs them from the module cache as they were published.
package goamqp

import (
	_ "github.com/Azure/go-amqp"
	_ "github.com/fortytw2/leaktest"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-cmp/cmp/cmpopts"
	_ "github.com/stretchr/testify/require"
)
